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


def write(path: Path, configuration: dict[str, Any], before: dict[str, Any]) -> str:
    """Write it as OpenClaw 2026.8.1 and 2026.9.6 do: not if it halves. Returns the refusal."""
    text, size = json.dumps(configuration, indent=2), len(json.dumps(before, indent=2))
    if size >= 512 and len(text) < size // 2:
        kept = path.with_name(f"{path.name}.rejected.2026-11-26T21-00-00-{len(list(path.parent.iterdir())):03d}Z")
        kept.write_text(text)
        return f"Config write rejected: {path} (size-drop:{size}->{len(text)}). Rejected payload saved to {kept}."
    hidden = path.with_suffix(".patched")  # whoever reads meanwhile sees the one or the other, as with OpenClaw
    hidden.write_text(text)
    hidden.rename(path)
    return ""


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
        refusal = "Config validation failed: nothing was written"
        if not configuration.get("refuses"):
            refusal = write(path, apply(configuration, json.loads(file.read_text())), configuration)
        print(refusal, file=sys.stderr)
        status = int(bool(refusal))
    with path.with_suffix(".calls").open("a") as calls:
        calls.write(json.dumps(call) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
