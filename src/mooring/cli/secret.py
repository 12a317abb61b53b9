"""``mooring secret set | list | remove``: the values behind ``{ store = "NAME" }``.

Values come from a prompt without echo or from stdin, never from the command line, and are never printed.
"""

from __future__ import annotations

import sys

import click

from mooring.cli.attached import tell_daemon
from mooring.cli.output import json_option, print_json, print_table, say
from mooring.config.home import Home
from mooring.config.names import did_you_mean
from mooring.config.secrets import Secrets
from mooring.errors import ConfigError


@click.group()
def secret() -> None:
    """Store values that the configuration refers to by name."""


@secret.command("set")
@click.argument("name")
def set_(name: str) -> None:
    """Keep a value under NAME; it is asked for, or read from stdin."""
    _secrets().store_set(name, _value(name))
    say(f'Stored. Use it in the configuration as {{ store = "{name}" }}.')
    tell_daemon()


@secret.command("list")
@json_option
def list_(as_json: bool) -> None:
    """Names of the stored secrets, never their values."""
    names = _secrets().store_names()
    if as_json:
        print_json(names)
    else:
        print_table(("NAME",), ((name,) for name in names), "No secrets are stored. Store one: mooring secret set NAME")


@secret.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget NAME and its value."""
    secrets = _secrets()
    if not secrets.store_remove(name):
        raise ConfigError(f'there is no secret "{name}"{did_you_mean(name, secrets.store_names())}')
    say(f"Removed {name}.")
    tell_daemon()


def _secrets() -> Secrets:
    return Secrets(Home.locate())


def _value(name: str) -> str:
    if sys.stdin.isatty():
        return click.prompt(f"Value of {name}", hide_input=True, err=True)
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")
