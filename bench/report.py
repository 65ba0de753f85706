"""Renders the page: tables and plots of one run, all generated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import contest, plots

_NOTE = "<!-- Written by `make bench`; changes here are lost. -->"


def write(results: Mapping[str, Any], docs: Path) -> None:
    """docs/performance.md with its plots, and the numbers they are made of."""
    (docs / "performance.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    folder = docs / "performance"
    folder.mkdir(exist_ok=True)
    drawn = []
    for name, (title, svg) in plots.draw(results["parts"]).items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        drawn.append(f"![{title}](performance/{name}.svg)\n")
    page = "\n".join([
        _head(results), *drawn, _MEANING, _compared(results["parts"]), _machine(results), _goals(results["goals"]),
    ])  # fmt: skip
    (docs / "performance.md").write_text(page.rstrip("\n") + "\n", encoding="utf-8")


def _head(results: Mapping[str, Any]) -> str:
    kind = "quick" if results["quick"] else "full"
    return f"""# Performance

{_NOTE}

From one {kind} run of `make bench` ({results["minutes"]} minutes); every figure is in
[performance.json](performance.json). Absolute times hold for that machine and hour only. Compare ratios: floors, other
schedulers and mailboxd took turns ([method](../CONTRIBUTING.md#benchmarks)).
"""


_MEANING = """\
**What they mean.** The first chart: a subtask costs a few milliseconds beside its turn, several times what huey
adds, because each step is recorded in a log that survives a crash. A turn of a real agent takes a second of CPU or
more, so that this is about a hundredth of it. The second: a flat line costs the same however long the history or
large the graph is. The goals at the end compare with the best of other schedulers, most of which record nothing of
the sort; not all are met.
"""
_TITLES = {
    "floors": "Floors of the machine",
    "latency": "Latency",
    "messages": "Many messages at once",
    "status": "`mailboxd status`, cold",
    "taskmd": "A plan of many children",
    "growth": "Growth",
    "rebuild": "Rebuild of the database",
    "idle": "Idle",
    "host": "A host with many agents",
    "openclaw": "With the real OpenClaw",
}


def tables(results: Mapping[str, Any]) -> str:
    """All figures of a run as Markdown, as a partial run prints them."""
    parts = results["parts"]
    return "\n".join([_goals(results["goals"]), _shapes(parts), *_others(parts), _machine(results)])


def _goals(goals: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [goal["what"], goal["goal"], _number(goal["measured"]), {True: "yes", False: "**no**", None: "?"}[goal["met"]]]
        for goal in goals
    ]
    return f"## Goals\n\n{_table(['what', 'goal', 'measured', 'met'], rows)}"


def _shapes(parts: Mapping[str, Any]) -> str:
    found = {name: part for name, part in parts.items() if "contestants" in part}
    if not found:
        return ""
    text = (
        "## Graphs of tasks\n\nEach node is a process that does nothing. *Overhead*: wall time per node minus that of\n"
        "a bare process at the same concurrency (median, range). *Own CPU*: without child processes.\n"
    )
    for name, part in found.items():
        rows = [_contestant(who, row) for who, row in part["contestants"].items()]
        size, edges, bare = part["size"], part["edges"], _number(part["bare process"]["p50"])
        text += (
            f"\n### {name} of {size:,}\n\n{size:,} nodes, {edges:,} edges, {part['at once']} at once; a bare process "
        )
        text += f"costs {bare} µs.\n\n"
        head = ["", "overhead µs", "range", "over huey", "own CPU µs", "peak MB"]
        text += _table(head, rows)
        if "completion -> next dispatch" in part:
            text += f"\n{_spread({'completion -> next dispatch': part['completion -> next dispatch']})}"
    left = "\n".join(f"- {who}: {why}" for who, why in contest.LEFT_OUT.items())
    kept = "\n".join(f"- {who}: {what}" for who, what in contest.KEPT.items())
    return f"{text}\nWhat survives a crash:\n\n{kept}\n\nLeft out:\n\n{left}\n"


def _compared(parts: Mapping[str, Any]) -> str:
    """The overhead of all schedulers on all shapes, in one table; `tables` has ranges, CPU and memory."""
    found = {name: part for name, part in parts.items() if "contestants" in part}
    if not found:
        return ""
    names = list(dict.fromkeys(who for part in found.values() for who in part["contestants"]))

    def cell(part: Mapping[str, Any], who: str) -> str:
        row = part["contestants"].get(who, {})
        return _number(row["overhead"]["p50"]) if "overhead" in row else ""

    rows = [
        [f"{name} of {part['size']:,}", _number(part["bare process"]["p50"]), *(cell(part, who) for who in names)]
        for name, part in found.items()
    ]
    text = (
        "## Graphs of tasks\n\nEach node is a process that does nothing. In µs: a bare process at the same\n"
        "concurrency, and the wall time per node that each scheduler adds to it (median).\n\n"
    )
    left = "; ".join(f"{who} ({why})" for who, why in contest.LEFT_OUT.items())
    kept = "; ".join(f"{who}: {what}" for who, what in contest.KEPT.items())
    return f"{text}{_table(['', 'bare', *names], rows)}\nWhat survives a crash: {kept}. Left out: {left}.\n"


def _contestant(who: str, row: Mapping[str, Any]) -> list[str]:
    if "overhead" not in row:
        return [who, row.get("problem", "not measured"), *[""] * 4]
    overhead = row["overhead"]
    spread = f"{_number(overhead['min'])}–{_number(overhead['max'])}" if overhead["n"] > 1 else ""
    rest = [row.get(name) for name in ("over huey", "own CPU µs per node", "peak MB")]
    return [who, _number(overhead["p50"]), spread, *map(_number, rest)]


def _others(parts: Mapping[str, Any]) -> Iterable[str]:
    for name, part in parts.items():
        if "contestants" not in part:
            told = {key: value for key, value in part.items() if key != "took s"}
            yield f"## {_TITLES.get(name, name)}\n\n{_facts(told)}"


def _facts(part: Mapping[str, Any], above: str = "") -> str:
    """The results of a part: a table of samples, a list of single numbers, and nested results below."""
    samples = {name: value for name, value in part.items() if isinstance(value, Mapping) and "p50" in value}
    single = [[name, _number(value)] for name, value in part.items() if not isinstance(value, Mapping | list)]
    text = _spread(samples) if samples else ""
    if single:
        text += ("\n" if text else "") + _list(single)
    for name, value in part.items():
        if isinstance(value, Mapping) and "p50" not in value:
            text += f"\n**{above}{name}**\n\n{_facts(value, f'{above}{name}, ')}"
        elif isinstance(value, list) and value:
            text += f"\n{_table(list(value[0]), [[_number(cell) for cell in row.values()] for row in value])}"
    return text


def _spread(samples: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        [f"{name}, {one['unit']}", *(_number(one[key]) for key in ("p50", "min", "max", "p99"))]
        for name, one in samples.items()
    ]
    return _table(["", "median", "min", "max", "p99"], rows)


def _machine(results: Mapping[str, Any]) -> str:
    return f"## The machine\n\n{_list([*results['machine'].items(), *results.get('versions', {}).items()])}"


def _list(rows: Iterable[Sequence[Any]]) -> str:
    return "".join(f"- {name}: {value}\n" for name, value in rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    lines += [f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _number(value: Any) -> str:
    """Three significant digits, which is more than a noisy machine can tell."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value == 0 or value == int(value) or abs(value) >= 100:
        return f"{round(value):,}"
    return f"{value:.3g}"
