"""The little of `openclaw config` that `mailboxd connect mcp install` uses, on a plain JSON file, recording its calls.

`config file --json`, `config get SECTION --json` and `config patch --file F`; each call is appended to
`<configuration>.calls`. With `"refuses": true` in the configuration no patch is taken. tests/live does the same with
the real one.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any


def apply(configuration: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Like OpenClaw's `config patch`: objects are merged, other values replaced, null deletes."""
    merged = dict(configuration)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = apply(merged.get(name, {}), value)
        else:
            merged[name] = value
    return merged


def main() -> int:
    path = Path(os.environ["OPENCLAW_CONFIG_PATH"])
    configuration = json.loads(path.read_text())
    words = sys.argv[1:]
    call: dict[str, Any] = {"argv": words}
    if words[:2] == ["config", "file"]:
        print(json.dumps({"path": str(path)}))
        status = 0
    elif words[:2] == ["config", "get"]:
        section = configuration.get(words[2])
        answer = section or {"ok": False, "error": {"message": f"Config path is valid but unset: {words[2]}."}}
        print(json.dumps(answer))
        status = 0 if section else 1
    else:
        file = Path(words[words.index("--file") + 1])
        call |= {"mode": stat.S_IMODE(file.stat().st_mode), "file": str(file)}
        if configuration.get("refuses"):
            print("Config validation failed: nothing was written", file=sys.stderr)
            status = 1
        else:
            hidden = path.with_suffix(".patched")  # whoever reads meanwhile sees the one or the other, as with OpenClaw
            hidden.write_text(json.dumps(apply(configuration, json.loads(file.read_text()))))
            hidden.rename(path)
            status = 0
    with path.with_suffix(".calls").open("a") as calls:
        calls.write(json.dumps(call) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
