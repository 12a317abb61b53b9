"""The echo server does what its flags say, over real pipes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mooring.testing import StdioClient, echo, wait_for
from mooring.testing.flags import parser
from mooring.testing.speech import DIALOGUE

ERAS = ("legacy", "modern")


def texts(result: dict) -> list[str]:
    return [item["text"] for item in result["content"] if item["type"] == "text"]


@pytest.fixture(params=ERAS)
def era(request) -> str:
    return request.param


async def test_dual_answers_both_eras_on_one_pipe():
    async with StdioClient(echo(), era="modern") as client:
        found = await client.open()
        assert found["supportedVersions"] == ["2026-07-28"]
        assert found["resultType"] == "complete"
        client.era = "legacy"
        assert (await client.open())["protocolVersion"] == "2025-11-25"
        assert (await client.result("ping")) == {}


async def test_legacy_refuses_discover_and_knows_older_versions():
    async with StdioClient(echo("--era", "legacy"), era="modern") as client:
        assert (await client.request("server/discover"))["error"]["code"] == -32601
        client.era = "legacy"
        assert (await client.request("tools/list"))["error"]["code"] == -32602
        hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        assert (await client.result("initialize", hello))["protocolVersion"] == "2025-03-26"


async def test_modern_refuses_initialize_old_versions_and_missing_meta():
    async with StdioClient(echo("--era", "modern"), era="legacy") as client:
        error = (await client.request("initialize", {"protocolVersion": "2025-11-25"}))["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}
        assert (await client.request("tools/list"))["error"]["code"] == -32602
        client.era = "modern"
        assert (await client.request("ping"))["error"]["code"] == -32601
        old = {"_meta": {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}}
        assert (await client.request("tools/list", old))["error"]["code"] == -32022


async def test_a_locked_server_keeps_the_era_of_the_first_request():
    async with StdioClient(echo("--lock-era"), era="modern") as client:
        await client.open()
        client.era = "legacy"
        assert (await client.request("initialize", {"protocolVersion": "2025-11-25"}))["error"]["code"] == -32022


async def test_echo_keeps_every_byte_of_its_arguments(era):
    async with StdioClient(echo(), era=era) as client:
        await client.open()
        meta = json.dumps({"_meta": (await client.call("seen"))["structuredContent"]["meta"]})[1:-1]
        raw = b'{"a" : 1.10, "n":123456789012345678901234567890,"s":"\\ud800\\u00e9", "z":{"x":[ 1e2 ]}}'
        line = b'{"jsonrpc":"2.0","id":"raw","method":"tools/call","params":{"name":"echo","arguments":%s,%s}}'
        client.send(line % (raw, meta.encode()))
        await wait_for(lambda: b'"raw"' in client.received[-1])
        assert b'"structuredContent":' + raw in client.received[-1]
        assert json.loads(client.received[-1])["result"]["content"][0]["text"].encode() == raw


async def test_lists_come_in_pages(era):
    async with StdioClient(echo("--tools", "40", "--page-size", "7"), era=era) as client:
        await client.open()
        names, cursor = [], {}
        while cursor is not None:
            page = await client.result("tools/list", cursor)
            assert len(page["tools"]) <= 7
            assert ("ttlMs" in page) is (era == "modern")
            names += [tool["name"] for tool in page["tools"]]
            cursor = {"cursor": page["nextCursor"]} if "nextCursor" in page else None
        assert names[-1] == "tool_39"
        assert len(names) == len(set(names))
        assert (await client.request("tools/list", {"cursor": "nonsense"}))["error"]["code"] == -32602


async def test_two_thousand_tools_and_a_repeated_cursor():
    async with StdioClient(echo("--tools", "2000", "--repeat-cursor")) as client:
        await client.open()
        page = await client.result("tools/list", {"cursor": "again"})
        assert len(page["tools"]) > 2000
        assert page["nextCursor"] == "again"


async def test_state_pid_environment_and_folder_are_visible(tmp_path):
    async with StdioClient(echo(), env={"ONLY": "this"}, cwd=str(tmp_path)) as client:
        await client.open()
        assert texts(await client.call("counter")) == ["1"]
        assert texts(await client.call("counter", {"by": 4})) == ["5"]
        pid = await client.call("pid")
        assert texts(pid) == [str(client.process.pid)]
        assert pid["structuredContent"]["cwd"] == str(tmp_path)
        assert (await client.call("env"))["structuredContent"]["ONLY"] == "this"


async def test_calls_run_at_the_same_time_and_report_progress(era):
    async with StdioClient(echo(), era=era) as client:
        await client.open()
        _, slow = client.begin(
            "tools/call", {"name": "sleep", "arguments": {"seconds": 0.4}, "_meta": {"progressToken": "p"}}
        )
        assert texts(await client.call("counter")) == ["1"]
        assert not slow.done()
        await asyncio.wait_for(slow, 10)
        assert [note["params"]["progress"] for note in client.notifications] == [1, 2, 3, 4]


async def test_a_cancelled_call_stops_and_is_not_answered(era):
    async with StdioClient(echo(), era=era) as client:
        await client.open()
        number, slow = client.begin("tools/call", {"name": "sleep", "arguments": {"seconds": 30}})
        client.notify("notifications/cancelled", {"requestId": number})
        assert (await client.call("seen"))["structuredContent"]["cancelled"] == [number]
        assert not slow.done()


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("elicit", {"action": "accept", "content": {"name": "octocat"}}),
        ("roots", {"roots": [{"uri": "file:///tmp", "name": "tmp"}]}),
    ],
)
async def test_tools_ask_their_client_in_the_way_of_the_era(era, tool, expected):
    async with StdioClient(echo(), era=era, capabilities=DIALOGUE) as client:
        await client.open()
        assert (await client.call(tool))["structuredContent"] == expected
        assert len(client.asked) == (1 if era == "legacy" else 0)


async def test_a_tool_asks_nothing_that_the_client_did_not_declare(era):
    async with StdioClient(echo(), era=era) as client:
        await client.open()
        assert (await client.request("tools/call", {"name": "sample"}))["error"]["code"] == -32021


async def test_a_false_request_state_is_refused():
    async with StdioClient(echo(), era="modern", capabilities=DIALOGUE) as client:
        await client.open()
        params = {"name": "elicit", "inputResponses": {"elicitation": {"action": "decline"}}, "requestState": "forged"}
        assert (await client.request("tools/call", params))["error"]["code"] == -32602


async def test_errors_come_in_both_kinds():
    async with StdioClient(echo()) as client:
        await client.open()
        assert (await client.call("error"))["isError"] is True
        assert (await client.request("tools/call", {"name": "rpc_error"}))["error"] == {
            "code": -32050,
            "message": "an error of its own",
            "data": {"vendor": [1, 2]},
        }
        assert (await client.request("tools/call", {"name": "absent"}))["error"]["code"] == -32602
        assert (await client.request("vendor/method"))["error"]["code"] == -32601


async def test_vendor_fields_are_everywhere():
    async with StdioClient(echo()) as client:
        await client.open()
        await client.call("vendor")
        assert b'"exact":1.10' in client.received[-1]
        tools = (await client.result("tools/list"))["tools"]
        assert any("x-vendor" in tool for tool in tools)


async def test_a_list_change_is_announced_in_the_way_of_the_era(era):
    async with StdioClient(echo("--changing"), era=era) as client:
        assert (await client.open())["capabilities"]["tools"] == {"listChanged": True}
        listen = None
        if era == "modern":
            wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["test://watched-resource"]}}
            listen, _ = client.begin("subscriptions/listen", wanted)
            accepted = await client.heard("notifications/subscriptions/acknowledged")
            assert accepted["notifications"] == wanted["notifications"]
        else:
            await client.result("resources/subscribe", {"uri": "test://watched-resource"})
        name = texts(await client.call("change"))[0]
        await client.call("touch")
        changed = await client.heard("notifications/tools/list_changed")
        updated = await client.heard("notifications/resources/updated")
        assert updated["uri"] == "test://watched-resource"
        if listen is not None:
            assert changed["_meta"] == updated["_meta"] == {"io.modelcontextprotocol/subscriptionId": listen}
            client.notify("notifications/cancelled", {"requestId": listen})
        else:
            await client.result("resources/unsubscribe", {"uri": "test://watched-resource"})
        assert name in [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        before = len(client.notifications)
        await client.call("touch")
        assert len(client.notifications) == before


async def test_log_messages_follow_the_level(era):
    async with StdioClient(echo(), era=era) as client:
        await client.open()
        quiet = {} if era == "modern" else {"_meta": {}}
        if era == "legacy":
            await client.result("logging/setLevel", {"level": "warning"})
        await client.call("log", {"level": "info"}, **quiet)
        loud = {"_meta": {"io.modelcontextprotocol/logLevel": "error"}} if era == "modern" else {}
        await client.call("log", {"level": "error", "text": "bad"}, **loud)
        assert [note["params"]["data"] for note in client.notifications] == ["bad"]


async def test_resources_prompts_and_completion(era):
    async with StdioClient(echo(), era=era) as client:
        await client.open()
        read = lambda uri: client.request("resources/read", {"uri": uri})  # noqa: E731
        assert (await read("test://static-text"))["result"]["contents"][0]["text"] == "a static text"
        assert (await read("test://static-binary"))["result"]["contents"][0]["blob"].startswith("iVBOR")
        assert (await read("test://template/7/data"))["result"]["contents"][0]["text"] == '{"id":"7"}'
        assert (await read("test://absent"))["error"]["code"] == (-32002 if era == "legacy" else -32602)
        link = (await client.call("link"))["content"][0]["uri"]
        assert "result" in await read(link)
        prompt = await client.result("prompts/get", {"name": "greeting", "arguments": {"name": "bob"}})
        assert prompt["messages"][0]["content"]["text"] == "Greet bob (plain)"
        assert (await client.request("prompts/get", {"name": "greeting"}))["error"]["code"] == -32602
        ref = {"ref": {"type": "ref/prompt", "name": "greeting"}, "argument": {"name": "name", "value": "al"}}
        assert (await client.result("completion/complete", ref))["completion"]["values"] == ["alice", "albert"]


async def test_capabilities_can_be_taken_away():
    async with StdioClient(echo("--without", "prompts", "--without", "completions")) as client:
        assert "prompts" not in (await client.open())["capabilities"]
        for method in ("prompts/list", "prompts/get", "completion/complete"):
            assert (await client.request(method))["error"]["code"] == -32601


async def test_huge_answers_have_the_size_asked_for():
    async with StdioClient(echo("--huge", "3000000")) as client:
        await client.open()
        assert len(texts(await client.call("huge"))[0]) == 3_000_000
        assert len(texts(await client.call("huge", {"bytes": 5}))[0]) == 5


async def test_garbage_and_bad_bytes_come_between_good_answers():
    async with StdioClient(echo("--garbage", "--non-utf8")) as client:
        await client.open()
        assert texts(await client.call("counter")) == ["1"]
        assert b"Server is ready!\n" in client.received
        assert any(b"\xff\xfe" in line for line in client.received)


async def test_silence_and_failure_are_by_method():
    async with StdioClient(echo("--hang", "initialize", "--fail", "ping")) as client:
        _, waiting = client.begin("initialize", {"protocolVersion": "2025-11-25"})
        client.notify("notifications/initialized")
        assert (await client.request("ping"))["error"]["code"] == -32603
        assert not waiting.done()


async def test_never_answer_reads_on():
    async with StdioClient(echo("--never-answer"), timeout=0.3) as client:
        with pytest.raises(TimeoutError):
            await client.open()
        client.timeout = 10
        assert client.received == []
        assert await client.close_stdin() == 0


@pytest.mark.parametrize("flags", [("--crash-in-call",), ("--crash-on", "tools/call")])
async def test_a_crash_in_a_call_ends_the_process_with_last_words(flags):
    async with StdioClient(echo(*flags)) as client:
        await client.open()
        with pytest.raises(ConnectionError):
            await client.call("counter")
        assert await client.process.wait() == 1
        await wait_for(lambda: "last words" in client.stderr)


async def test_crash_at_start_and_crash_on_demand():
    async with StdioClient(echo("--crash-at-start")) as client:
        assert await asyncio.wait_for(client.process.wait(), 10) == 1
        await wait_for(lambda: "cannot start" in client.stderr)
    async with StdioClient(echo()) as client:
        await client.open()
        with pytest.raises(ConnectionError):
            await client.call("crash", {"code": 9})
        assert await client.process.wait() == 9


async def test_stderr_noise_and_complaints_arrive():
    async with StdioClient(echo("--stderr-noise", "200000")) as client:
        await client.open()
        await client.call("complain", {"text": "ouch"})
        await wait_for(lambda: client.stderr.endswith("ouch\n"))
        assert len(client.stderr) == 200_000 + 5


async def test_it_starts_late_when_told_so():
    async with StdioClient(echo("--start-delay", "0.3")) as client:
        start = time.monotonic()
        await client.open()
        assert time.monotonic() - start >= 0.3


async def test_it_ends_with_its_input_and_on_sigterm():
    async with StdioClient(echo()) as client:
        await client.open()
        assert await client.close_stdin() == 0
    async with StdioClient(echo()) as client:
        await client.open()
        client.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(client.process.wait(), 10) == -signal.SIGTERM


async def test_it_survives_sigterm_and_end_of_input_when_told_so():
    async with StdioClient(echo("--ignore-term", "--ignore-eof")) as client:
        await client.open()
        client.process.send_signal(signal.SIGTERM)
        assert texts(await client.call("counter")) == ["1"]
        client.timeout = 0.3
        with pytest.raises(TimeoutError):
            await client.close_stdin()
        assert client.process.returncode is None


async def test_grandchildren_are_one_in_the_group_and_one_in_a_session_of_its_own():
    async with StdioClient(echo("--spawn-grandchild")) as client:
        await client.open()
        near, far = (await client.call("pid"))["structuredContent"]["grandchildren"]
        try:
            assert psutil.pid_exists(near)
            assert os.getsid(near) == os.getsid(client.process.pid)
            assert os.getsid(far) == far
        finally:
            os.kill(near, signal.SIGKILL)
            os.kill(far, signal.SIGKILL)


async def test_malformed_lines_get_errors_and_the_conversation_goes_on():
    async with StdioClient(echo()) as client:
        for line in (b"not json", b"[]", b'{"jsonrpc":"2.0","id":{},"method":"ping"}', b"\xff"):
            client.send(line)
        assert await client.result("ping") == {}
        codes = [json.loads(line)["error"]["code"] for line in client.received[:4]]
        assert codes == [-32700, -32600, -32600, -32700]


def test_it_starts_in_a_few_hundredths_of_a_second():
    times = []
    for _ in range(5):
        process = subprocess.Popen(echo(), stdin=subprocess.DEVNULL)
        _, process.returncode, usage = os.wait4(process.pid, 0)
        times.append(usage.ru_utime + usage.ru_stime)  # of the processor: the machine may be busy
    assert min(times) < 0.1


def test_it_loads_neither_asyncio_nor_anything_installed():
    code = "import sys, mooring.testing.echo; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert not {"asyncio", "msgspec", "subprocess", "socket", "mcp"} & set(loaded.stdout.split())


def test_every_flag_and_tool_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text().partition("## The SMCP server")[0]
    flags = {flag for action in parser()._actions for flag in action.option_strings} - {"-h", "--help"}
    assert set(re.findall(r"^\| `(--[a-z0-9-]+)", page, re.M)) == flags
    from mooring.testing.tools import _TOOLS

    documented = {name for row in re.findall(r"^\| (`[a-z_`, ]+`) \|", page, re.M) for name in re.findall(r"\w+", row)}
    assert documented == set(_TOOLS)
