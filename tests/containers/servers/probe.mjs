// The same server for Node: on stdio, or with `--port N` over HTTP. No packages. One tool: `echo`.
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const hello = { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "node", version: "1" } };

function answer({ id, method, params = {} }) {
  if (id === undefined) return null;
  if (method === "initialize") return { jsonrpc: "2.0", id, result: hello };
  if (method === "ping") return { jsonrpc: "2.0", id, result: {} };
  if (method === "tools/list") {
    return { jsonrpc: "2.0", id, result: { tools: [{ name: "echo", inputSchema: { type: "object" } }] } };
  }
  if (method === "tools/call") {
    const found = { ...params.arguments, node: process.version };
    return { jsonrpc: "2.0", id, result: { content: [{ type: "text", text: "ok" }], structuredContent: found } };
  }
  return { jsonrpc: "2.0", id, error: { code: -32601, message: "no" } };
}

const at = process.argv.indexOf("--port");
if (at > 0) {
  createServer((request, response) => {
    if (request.method !== "POST") return response.writeHead(405).end();
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      const reply = answer(JSON.parse(body));
      if (!reply) return response.writeHead(202).end();
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(reply));
    });
  }).listen(Number(process.argv[at + 1]), "0.0.0.0");
} else {
  createInterface({ input: process.stdin })
    .on("line", (line) => {
      const reply = answer(JSON.parse(line));
      if (reply) process.stdout.write(JSON.stringify(reply) + "\n");
    })
    .on("close", () => process.exit(0));
}
