"""The command line: the subcommands of `openclaw` that mailboxd calls, with the same words and the same errors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from mailboxd.agents.scripted import NAME, NOTICE, play
from mailboxd.agents.scripted.play import Turn
from mailboxd.agents.scripted.script import Ledger, Run, Script, ScriptError, number, runs

_VERSION = "2026.9.6"
_MESSAGE_CAP = 4_194_304
_AGENT_OPTIONS = frozenset(
    {"--agent", "--session-key", "--message", "-m", "--message-file", "--timeout", "--model", "--thinking"}
)
_SHELL = (
    "Gateway agent from agent exec would lose inter-session attribution. Use the attributed session-messaging tool "
    "available to this run, or return the result through normal subagent completion. Do not retry through another CLI "
    "route or remove the exec marker."
)


class Refused(Exception):
    """An error of the command line, as OpenClaw words it."""


def run(arguments: list[str]) -> int:
    """Carry out one command line; prints, and returns the exit status."""
    path = os.environ.get("MAILBOXD_SCRIPT", "")
    if arguments[:1] == ["--script"]:
        path, arguments = arguments[1] if len(arguments) > 1 else "", arguments[2:]
    if arguments == ["--version"]:
        output, status = f"OpenClaw {_VERSION} ({NAME}: a scripted stand-in, not the real one)", 0
    else:
        output, status = _run(path, [argument for argument in arguments if argument != "--json"])
    sys.stdout.write(output + "\n")
    sys.stdout.flush()
    sys.stderr.write(NOTICE + "\n")
    return status


def _run(path: str, arguments: list[str]) -> tuple[str, int]:
    try:
        if not path:
            raise Refused(f"{NAME}: no script; give --script FILE first or set MAILBOXD_SCRIPT")
        script = Script(Path(path))
        if arguments[:1] == ["agent"]:
            return _agent(script, arguments[1:])
        return play.dump(_ask(script, arguments)), 0
    except (ScriptError, OSError) as problem:
        return play.dump(play.cli_error(f"{NAME}: {problem}")), 1
    except Refused as problem:
        return play.dump(play.cli_error(str(problem))), 1


def _ask(script: Script, arguments: list[str]) -> object:
    match arguments:
        case ["agents", "list"]:
            return play.agents_list(script.agents)
        case ["config", "file"]:
            return {"path": str(script.path)}
        case ["config", "get", "agents"]:
            return play.agents_config(script.agents)
        case ["config", "get", "gateway"] if isinstance(script.gateway, dict):
            return {"mode": "local", "port": int(number(script.gateway, "port", "gateway"))}
        case ["config", "get", name]:
            raise Refused(f"Config path is valid but unset: {name}. The runtime default applies.")
        case ["tasks", "show", token]:
            return play.task_row(_row(script, token))
        case ["gateway", "call", method, "--params", parameters]:
            return _call(script, method, parameters)
    raise Refused(f"{NAME}: no such command here: {' '.join(arguments)[:200]}")


def _row(script: Script, token: str) -> Run:
    for found in reversed(runs(Ledger(script.ledger).entries())):
        if token in (found.id, found.begin["session_key"]):
            return found
    raise Refused(f"Task not found: {token}. Run `openclaw tasks list` to see recent task ids.")


def _call(script: Script, method: str, parameters: str) -> object:
    try:
        values = json.loads(parameters)
        name = values["runId"] if method == "agent.wait" else values["sessionKey"]
    except (ValueError, KeyError, TypeError):
        raise Refused(f"Invalid --params for {method}") from None
    known = runs(Ledger(script.ledger).entries())
    if method == "agent.wait":
        return play.waited(next((found for found in known if found.id == name), None), str(name))
    if method == "chat.history":
        return play.history(name, [found for found in known if found.begin["session_key"] == name])
    raise Refused(f"unknown method: {method}")


def _agent(script: Script, arguments: list[str]) -> tuple[str, int]:
    if os.environ.get("OPENCLAW_SHELL") == "exec":
        raise Refused(_SHELL)
    options = _options(arguments)
    name = options.get("--agent", "")
    agent = script.agent(name)
    if agent is None:
        raise Refused(f'Unknown agent id "{name}". Use "openclaw agents list" to see configured agents.')
    text = _message(options)
    limit = options.get("--timeout", "600")
    if not limit.isdecimal():
        raise Refused("Invalid --timeout. Use seconds as a non-negative integer, for example --timeout 600.")
    key = options.get("--session-key", "main").lower()
    if not key.startswith("agent:"):
        key = f"agent:{agent.id.lower()}:{key}"
    elif key.split(":")[1] != agent.id.lower():
        raise Refused(f'Agent id "{name}" does not match session key agent "{key.split(":")[1]}".')
    model = options.get("--model", "")
    ended = Turn(script, agent, key, text, float(limit), model).play()
    return ended.output, ended.rc


def _options(arguments: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    rest = iter(arguments)
    for option in rest:
        if option not in _AGENT_OPTIONS:
            raise Refused(f'OpenClaw does not recognize option "{option}".\nTry: openclaw agent --help')
        options[option] = next(rest, "")
    return options


def _message(options: dict[str, str]) -> str:
    if "--message-file" not in options:
        return options.get("--message", options.get("-m", ""))
    path = Path(options["--message-file"])
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except FileNotFoundError:
        raise Refused(f"Message file not found: {path}") from None
    except OSError as problem:
        raise Refused(f"Unable to read message file {path}: {problem}") from problem
    except UnicodeDecodeError:
        raise Refused(f"Message file must be valid UTF-8: {path}") from None
    if len(raw) > _MESSAGE_CAP:
        raise Refused(f"Unable to read message file {path}: File exceeds {_MESSAGE_CAP} bytes: {path}")
    if not text.strip():
        raise Refused(f"Message file is empty: {path}")
    return text
