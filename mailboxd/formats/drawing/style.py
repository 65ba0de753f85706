"""How tasks and attempts look: a word, a symbol, a shape, a tone; and texts cut to a width."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.vocabulary import CANCELLED, FAILED, AttemptStatus, State


class Tone(StrEnum):
    """The meaning of a color; a style sheet or a terminal has the colors."""

    IDLE = "idle"
    BUSY = "busy"
    ASK = "ask"
    GOOD = "good"
    BAD = "bad"
    OFF = "off"


class Shape(StrEnum):
    BOX = "box"
    PILL = "pill"
    HEXAGON = "hexagon"
    ROUND = "round"
    NOTCH = "notch"
    STACK = "stack"


@dataclass(frozen=True, slots=True)
class Style:
    word: str
    symbol: str
    shape: Shape
    tone: Tone


_LOOKS = {
    State.NEEDS_YOU: ("‖", Shape.HEXAGON, Tone.ASK),
    State.RUNNING: ("▶", Shape.PILL, Tone.BUSY),
    State.WAITING: ("○", Shape.BOX, Tone.IDLE),
    State.DONE: ("✓", Shape.ROUND, Tone.GOOD),
    FAILED: ("✗", Shape.NOTCH, Tone.BAD),
    CANCELLED: ("–", Shape.BOX, Tone.OFF),
}
STATE_STYLES: Mapping[str, Style] = {str(state): Style(str(state), *look) for state, look in _LOOKS.items()}
"""By the words of `state_words`."""
ATTEMPT_STYLES: Mapping[str, Style] = {
    AttemptStatus.RUNNING: Style("running", "▶", Shape.PILL, Tone.BUSY),
    AttemptStatus.SUCCEEDED: Style("succeeded", "✓", Shape.ROUND, Tone.GOOD),
    AttemptStatus.FAILED: Style("failed", "✗", Shape.NOTCH, Tone.BAD),
    AttemptStatus.ABORTED: Style("aborted", "–", Shape.BOX, Tone.OFF),
    AttemptStatus.UNKNOWN: Style("unknown", "!", Shape.HEXAGON, Tone.ASK),
}
_UNKNOWN = Style("unknown", "?", Shape.BOX, Tone.IDLE)
_URGENCY = (Tone.ASK, Tone.BAD, Tone.BUSY, Tone.IDLE, Tone.GOOD, Tone.OFF)


def style_of(state: str) -> Style:
    """The style of a task in this state (`state_words`), or that of an unknown one."""
    return STATE_STYLES.get(state, _UNKNOWN)


def attempt_style(status: str) -> Style:
    """The style of an attempt, or of the state that is drawn in its place."""
    return ATTEMPT_STYLES.get(status) or style_of(status)


def most_urgent_tone(counts: Mapping[str, int]) -> Tone:
    """The tone of a stack: that of its most urgent tasks."""
    tones = {style_of(state).tone for state, count in counts.items() if count}
    return next((tone for tone in _URGENCY if tone in tones), Tone.IDLE)


def counts_text(counts: Mapping[str, int]) -> str:
    """`2 ✗ done: failed, 40 ✓ done`, most urgent first."""
    parts = sorted(
        (item for item in counts.items() if item[1]), key=lambda item: _URGENCY.index(style_of(item[0]).tone)
    )
    return ", ".join(f"{count:,} {style_of(state).symbol} {style_of(state).word}" for state, count in parts)


def width(text: str) -> int:
    """The columns of a text: wide characters count 2, combining ones 0."""
    return sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, room: int) -> str:
    """Cut a text to one line of at most `room` columns, with an ellipsis."""
    text = " ".join(text.split())
    if width(text) <= room:
        return text
    kept, used = [], 0
    for char in text:
        used += _width(char)
        if used > room - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"
