"""Whatever anybody sends: text eight times as long costs about eight times as much to read, not sixty-four times.

The CPU time of one length is compared with that of another, so the speed of the machine does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from mailboxd.core.vocabulary import Turn
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.formats.protocol.markdown import sole_block
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.formats.protocol.spec import parse_checks, read_actions
from mailboxd.formats.protocol.strict_yaml import repaired

_SHORT, _LONG = 10_000, 80_000


def task(body: str) -> object:
    return parse_message(f"---\ntype: task\ntask_id: a\nfrom: b\n---\n# Task: x\n\n{body}".encode(), "a.md")


def seconds(read: Callable[[str], object], text: str) -> float:
    taken = []
    for _ in range(3):
        started = time.process_time()
        with suppress(MessageError):
            read(text)
        taken.append(time.process_time() - started)
    return min(taken)


def hostile(size: int) -> dict[str, str]:
    def runs(piece: str) -> str:
        return piece * (size // len(piece))

    return {
        "fences that nothing closes": runs("```x\n"),
        "fences that get longer": "".join(f"{'`' * (3 + n % 200)}x\n" for n in range(size // 100)),
        "fences with text behind them": "```\n" + runs("\n``` x"),
        "one long fence": f"{runs('`')}\nx\n{runs('`')}x",
        "blank lines in a fence": f"```\n{runs(chr(10))}```{runs(chr(10))}x",
        "dashes": runs("- ") + ": |x",
        "dashes and blanks": f"-{runs(' ')}:{runs(' ')}",
        "dashes that may begin headers": runs("—\n"),
        "indented dashes that may begin headers": runs(" ---\n"),
        "many lines of dashes": runs("- " * 20 + "\n"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("text", hostile(1))
@pytest.mark.parametrize(
    "read",
    [
        lambda text: read_actions(f"- id: a\n{text}"),
        parse_checks,
        repaired,
        sole_block,
        lambda text: task(f"## Planned Actions\n- id: a\n{text}"),
        lambda text: read_answer(f"Saved.\n\n## Planned Actions\n- id: a\n{text}"),
        lambda text: read_answer(text, Asked(Turn.REVIEW)),
    ],
    ids=["actions", "checks", "repair", "data", "task", "answer", "review"],
)
def test_what_is_longer_costs_more_in_proportion(read: Callable[[str], object], text: str) -> None:
    short, long = (seconds(read, hostile(size)[text]) for size in (_SHORT, _LONG))
    assert long < 24 * short + 0.05
