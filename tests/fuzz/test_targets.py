"""The properties of `targets` for the corpus, the examples of the documentation, and random inputs.

Cost is counted in executed lines, not in seconds: the count is the same on every machine.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import CORPUS, ROOT, TARGETS, seeds

pytestmark = pytest.mark.slow

MOST_LINES_PER_KB = 70_000
"""Lines of Python that may run per additional kilobyte.

Measured: 60,000 for nothing but headings of seven bytes, 143 in a kilobyte. Each costs about 90 lines where it is read
or written, and the target parses three times and renders twice. A body has at most 5,000 of them.
"""
PIECES = [
    *(b"---\n", b"type: task\n", b"type: plan\n", b"task_id: a\n", b"from: b\n", b"mode: direct\n", b"\r\n", b"\n"),
    *(b"# Task: x\n", b"## DAG\n", b"## Checks\n", b"## Planned Actions\n", b"## Instructions\n", b"### a\n"),
    *(b"subtasks:\n", b"  a: {agent: b, description: c}\n", b"- id: a\n", b"  command: [a]\n", b"  kind: manual\n"),
    *(b"  action: x\n", b"```\n", b"```yaml\n", b"~~~\n", b"\xff", b"x" * 50, b"  ", b"{}", b'{"runId":"r"}'),
    *(b"[", b"{", b"}", b"]", b": ", b", ", b'"', b"'", b"&a ", b"*a", b"<<: ", b"!!x ", b"|\n", b"\t", b"\0", b"\\"),
    *(b"\xe2\x80\xa8", b"\xef\xbb\xbf"),
]
MOST_EXPOSED = ("answer",)
"""What anybody may send, and what an agent says."""
FRAMES = (
    *(b"%s", b"---\ntype: task\ntask_id: a\nfrom: b\n---\n%s", b"---\nx: %s\n---\n", b"- id: a\n  command: %s\n"),
    b"\x02%s",
)
"""Inputs with more than linear cost, possibly: one piece repeated, alone and inside each structure."""


def lines_of(target: Callable[[bytes], None], raw: bytes) -> int:
    """Counts the executed lines of Python, including calls."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        target(raw)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", TARGETS)
def test_the_laws_hold_for_what_is_shown_and_for_what_once_broke_them(name: str) -> None:
    found = list(seeds(name))
    assert len(found) >= 5
    for raw in found:
        TARGETS[name](raw)


def test_what_once_broke_a_law_is_kept_for_a_target_that_there_is() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
@given(raw=st.binary(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join))
def test_the_laws_hold_for_any_bytes(name: str, raw: bytes) -> None:
    TARGETS[name](raw)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_longer_costs_more_in_proportion_and_not_more_than_that(name: str) -> None:
    target = TARGETS[name]
    target(b"")  # imports and compiles once, outside of the measurement
    expensive = {}
    for frame in FRAMES:
        for piece in PIECES:
            small, large = (frame % (piece * (size // len(piece))) for size in (2_000, 6_000))
            more = lines_of(target, large) - lines_of(target, small)
            if more > 4 * MOST_LINES_PER_KB:
                expensive[frame, piece] = more // 4
    assert expensive == {}


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in MOST_EXPOSED else pytest.mark.soak) for name in TARGETS]
)
def test_a_few_thousand_inputs_guided_by_coverage_find_nothing(name: str, tmp_path: Path) -> None:
    """The same inputs every time: `make fuzz` looks for new ones."""
    fuzzed = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run", name, "3000x", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert fuzzed.returncode == 0, fuzzed.stdout[-2000:] + fuzzed.stderr[-4000:]
    assert "stat::number_of_executed_units" in fuzzed.stderr
