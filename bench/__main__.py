"""Measures mailboxd together with the floors of the machine and other schedulers, in one run: `make bench`.

    python -m bench --peers PYTHON [--quick] [--only PART,...] [--base DIRECTORY]
    python -m bench --page                     rewrite the page from the stored numbers

A whole run writes docs/performance.json, and from it docs/performance.md and the plots. A partial run (`--only`), or
one that was interrupted, writes .bench/last.json and prints its tables, because numbers of different runs do not belong
on one page. Exit status: 1 if a part could not be measured, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import json
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from bench import (
    contest,
    floors,
    goals,
    growth,
    host,
    idle,
    latency,
    machine,
    messages,
    processes,
    report,
    shapes,
    taskmd,
)
from bench.processes import Broken
from bench.workshop import Workshop, say

ROOT = Path(__file__).parents[1]
Part = Callable[[Workshop], dict[str, Any]]


def _openclaw(shop: Workshop) -> dict[str, Any]:
    """Imported on demand, because it needs the installation of the live tests."""
    from bench import real

    return real.measure(shop)


PARTS: dict[str, Part] = {
    "floors": floors.measure,
    "latency": latency.measure,
    "status": messages.small_status,
    "messages": messages.measure,
    "chain": shapes.part("chain"),
    "fan": shapes.part("fan"),
    "random": shapes.part("random"),
    "layered": shapes.part("layered"),
    "large": shapes.part("large"),
    **{f"{name} on tmpfs": shapes.part(name, on_tmpfs=True) for name in ("chain", "fan", "random")},
    "taskmd": taskmd.measure,
    "growth": growth.measure,
    "rebuild": growth.rebuild,
    "idle": idle.measure,
    "host": host.measure,
    "openclaw": _openclaw,
}
"""The parts, by their names on the command line and in the results."""
ONLY_FULL = frozenset({"large", "openclaw"})


def main() -> int:
    words = _arguments()
    if words.page:
        report.write(json.loads((ROOT / "docs" / "performance.json").read_text(encoding="utf-8")), ROOT / "docs")
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts what it puts aside with SIGINT ignored
        signal.signal(number, _interrupted)
    begun = time.monotonic()
    shop = Workshop.open(words.base, words.peers, quick=words.quick)
    results: dict[str, Any] = {"quick": words.quick, "machine": machine.facts(shop), "parts": {}}
    stopped = done = False
    try:
        results["versions"] = {**machine.versions(), **contest.versions(shop)}
        _measure(shop, words.only or _usual(words.quick), results)
        done = True
    except KeyboardInterrupt:
        stopped = True
        say("stopped; what was measured is kept")
    finally:
        processes.end_all()
        shop.close()
        results["minutes"] = round((time.monotonic() - begun) / 60, 1)
        results["goals"] = goals.judge(results["parts"])
        _keep(results, words.base, whole=done and not words.only)
    failed = any("problem" in part for part in results["parts"].values())
    return 130 if stopped else int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--peers", type=Path, default=Path("python"), help="the Python of the peers' environment")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", type=lambda text: [word for word in text.split(",") if word], default=[])
    parser.add_argument("--base", type=Path, default=ROOT / ".bench", help="a directory on the disk to be measured")
    parser.add_argument("--page", action="store_true", help="only write the page again, from docs/performance.json")
    words = parser.parse_args()
    unknown = set(words.only) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return words


def _usual(quick: bool) -> list[str]:
    """The parts of a whole run; with the real openclaw if it is installed, which takes 1 GB."""
    from tests.live.install import standard

    is_there = standard().openclaw.exists()
    if not (quick or is_there):
        say("openclaw: left out; to have it on the page, install it: python -m tests.live.install (1 GB)")
    left_out = {*(ONLY_FULL if quick else ()), *(() if is_there else ("openclaw",))}
    return [name for name in PARTS if name not in left_out]


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _measure(shop: Workshop, chosen: list[str], results: dict[str, Any]) -> None:
    for name in chosen:
        begun = time.monotonic()
        try:
            found = PARTS[name](shop)
        except (Broken, OSError, sqlite3.Error) as problem:
            say(f"{name}: {problem}")
            found = {"problem": str(problem)}
        finally:
            processes.end_all()
        results["parts"][name] = found | {"took s": round(time.monotonic() - begun, 1)}


def _keep(results: Mapping[str, Any], base: Path, *, whole: bool) -> None:
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    (base / "last.json").write_text(text, encoding="utf-8")
    if whole:
        report.write(results, ROOT / "docs")
        say("written: docs/performance.md, docs/performance.json")
    else:
        print(report.tables(results))
        say(f"kept: {base / 'last.json'}")


if __name__ == "__main__":
    sys.exit(main())
