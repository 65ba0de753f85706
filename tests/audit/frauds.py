"""A journal written anew by somebody who knows its format: nothing of mailboxd is used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[dict[str, Any]], None]


def rewrite(folder: Path, change: Change) -> None:
    """Change the events of the journal in `folder`, and compute all hashes and heads anew; signatures are left."""
    before, hashes = "0" * 64, dict[int, str]()
    for path in sorted(folder.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for said in lines:
            if "seq" in said:
                change(said)
                data = json.dumps(said["data"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                row = [before, *(said[name] for name in ("seq", "at", "kind", "task", "role", "actor")), data]
                text = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
                before = said["hash"] = hashes[said["seq"]] = hashlib.sha256(text.encode()).hexdigest()
            elif "head" in said:
                said["head"]["hash"] = hashes[said["head"]["seq"]]
            elif "after" in said and said["after"][0]:
                said["after"][1] = hashes[said["after"][0]]
        path.write_text("".join(f"{json.dumps(said, separators=(',', ':'))}\n" for said in lines))
