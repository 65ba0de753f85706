"""How tasks and attempts look: a word, a symbol, a shape, a tone; and texts cut to a width."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.vocabulary import WAITING_FOR_YOU, WORDS, AttemptStatus, Phase


class Tone(StrEnum):
    """The meaning of a color; a style sheet or a terminal has the colors."""

    IDLE = "idle"
    BUSY = "busy"
    CHECK = "check"
    ASK = "ask"
    GOOD = "good"
    BAD = "bad"
    OFF = "off"


class Shape(StrEnum):
    BOX = "box"
    PILL = "pill"
    CUT = "cut"
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
    Phase.SPEC_DRAFT: ("…", Shape.CUT, Tone.CHECK),
    Phase.SPEC_REVIEW: ("?", Shape.CUT, Tone.CHECK),
    Phase.EXECUTION_READY: ("○", Shape.BOX, Tone.IDLE),
    Phase.EXECUTING: ("▶", Shape.PILL, Tone.BUSY),
    Phase.SPEC_GATE: ("?", Shape.CUT, Tone.CHECK),
    Phase.QUALITY_GATE: ("?", Shape.CUT, Tone.CHECK),
    Phase.AWAITING_APPROVAL: ("‖", Shape.HEXAGON, Tone.ASK),
    Phase.READY_TO_RESUME: ("▷", Shape.PILL, Tone.BUSY),
    Phase.COMPLETED: ("✓", Shape.ROUND, Tone.GOOD),
    Phase.FAILED: ("✗", Shape.NOTCH, Tone.BAD),
    Phase.CIRCUIT_OPEN: ("!", Shape.NOTCH, Tone.BAD),
    Phase.CANCELLED: ("–", Shape.BOX, Tone.OFF),
}
PHASE_STYLES: Mapping[str, Style] = {phase: Style(WORDS[phase], *look) for phase, look in _LOOKS.items()}
STATE_STYLES: Mapping[str, Style] = {
    WAITING_FOR_YOU: Style(WAITING_FOR_YOU, "‖", Shape.HEXAGON, Tone.ASK),
    **PHASE_STYLES,
}
"""What is displayed of a task: that it waits for a person, or its phase."""
ATTEMPT_STYLES: Mapping[str, Style] = {
    AttemptStatus.RUNNING: Style("running", "▶", Shape.PILL, Tone.BUSY),
    AttemptStatus.SUCCEEDED: Style("succeeded", "✓", Shape.ROUND, Tone.GOOD),
    AttemptStatus.FAILED: Style("failed", "✗", Shape.NOTCH, Tone.BAD),
    AttemptStatus.ABORTED: Style("aborted", "–", Shape.BOX, Tone.OFF),
    AttemptStatus.UNKNOWN: Style("unknown", "!", Shape.HEXAGON, Tone.ASK),
}
_UNKNOWN = Style("unknown", "?", Shape.BOX, Tone.IDLE)
_URGENCY = (Tone.BAD, Tone.ASK, Tone.BUSY, Tone.CHECK, Tone.IDLE, Tone.GOOD, Tone.OFF)


def style_of(state: str) -> Style:
    """The style of a displayed state, or that of an unknown one."""
    return STATE_STYLES.get(state, _UNKNOWN)


def attempt_style(status: str) -> Style:
    """The style of an attempt, or of the phase that is drawn in its place."""
    return ATTEMPT_STYLES.get(status) or style_of(status)


def most_urgent_tone(counts: Mapping[str, int]) -> Tone:
    """The tone of a stack: that of its most urgent tasks."""
    tones = {style_of(state).tone for state, count in counts.items() if count}
    return next((tone for tone in _URGENCY if tone in tones), Tone.IDLE)


def counts_text(counts: Mapping[str, int]) -> str:
    """`2 ✗ failed, 40 ✓ completed`, most urgent first."""
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
