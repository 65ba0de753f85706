"""`openclaw` for setup: the scripted stand-in, with a configuration that can be read and changed, and a plugin in it.

What it says of plugins is the protocol of the commands only; tests/live/test_setup.py has the real one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.e2e.support import SCRIPTED
from tests.mcp import configurator
from tests.mcp.configurator import apply

PLUGIN = Path(__file__).resolve().parents[2] / "templates" / "openclaw-plugin"


def main() -> None:
    path = Path(os.environ["OPENCLAW_CONFIG_PATH"])
    said, words = json.loads(path.read_text()), [word for word in sys.argv[1:] if word != "--json"]
    match words:
        case ["config", "file"]:
            print(json.dumps({"path": str(path)}))
        case ["config", "get", name]:
            section: Any = said
            for part in name.split("."):
                section = section.get(part) if isinstance(section, dict) else None
            unset = {"ok": False, "error": {"message": f"Config path is valid but unset: {name}."}}
            print(json.dumps(unset if section is None else section))
            sys.exit(section is None)
        case ["config", "patch", "--file", file]:
            if refusal := configurator.write(path, apply(said, json.loads(Path(file).read_text())), said):
                sys.exit(refusal)
        case ["config", "set", name, value, "--strict-json"]:
            write(path, apply(said, nested(name, json.loads(value))))
        case ["config", "set", name, value]:
            write(path, apply(said, nested(name, value)))
        case ["config", "unset", name]:
            write(path, apply(said, nested(name, None)))
        case ["plugins", "inspect", _, "--runtime"]:
            inspect(said)
        case ["plugins", "install", *_]:
            if said.get("refusesPlugins"):
                sys.exit("the registry is down")
            write(path, apply(said, nested("plugins.entries.mailboxd.enabled", True)))
        case ["plugins", "uninstall", *_]:
            write(path, apply(said, nested("plugins.entries.mailboxd", {"enabled": False, "hooks": None})))
        case ["plugins", "reload", *_]:
            sys.exit("no gateway runs")
        case _:
            os.execv(SCRIPTED, [SCRIPTED, *sys.argv[1:]])


def inspect(said: dict[str, Any]) -> None:
    entry = said.get("plugins", {}).get("entries", {}).get("mailboxd", {})
    if not entry.get("enabled"):
        print(json.dumps({"ok": False, "error": {"message": "Plugin not found: mailboxd"}}))
        sys.exit(1)
    plugin = {"enabled": True, "rootDir": str(PLUGIN), "version": "1.0.0"}
    access = entry.get("hooks", {}).get("allowConversationAccess") is True
    hooks = [{"name": "before_agent_reply"}]
    print(json.dumps({"plugin": plugin, "policy": {"allowConversationAccess": access}, "typedHooks": hooks}))


def nested(name: str, value: Any) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {first: nested(rest, value) if rest else value}


def write(path: Path, said: dict[str, Any]) -> None:
    path.write_text(json.dumps(said, indent=2, sort_keys=True))


if __name__ == "__main__":
    main()
