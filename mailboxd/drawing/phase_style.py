"""How a phase looks: a word, a symbol, a shape and a tone. Any one of the four tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.vocabulary import AttemptStatus, Phase


class Tone(StrEnum):
    """A colour by what it means; which colour it is says the style sheet, for light and for dark."""

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
class Look:
    word: str
    symbol: str
    shape: Shape
    tone: Tone


LOOKS: Mapping[str, Look] = {
    Phase.SPEC_DRAFT: Look("spec draft", "…", Shape.CUT, Tone.CHECK),
    Phase.SPEC_REVIEW: Look("spec review", "?", Shape.CUT, Tone.CHECK),
    Phase.EXECUTION_READY: Look("ready", "○", Shape.BOX, Tone.IDLE),
    Phase.EXECUTING: Look("executing", "▶", Shape.PILL, Tone.BUSY),
    Phase.SPEC_GATE: Look("spec gate", "?", Shape.CUT, Tone.CHECK),
    Phase.QUALITY_GATE: Look("quality gate", "?", Shape.CUT, Tone.CHECK),
    Phase.AWAITING_APPROVAL: Look("awaiting approval", "‖", Shape.HEXAGON, Tone.ASK),
    Phase.READY_TO_RESUME: Look("ready to resume", "▷", Shape.PILL, Tone.BUSY),
    Phase.COMPLETED: Look("completed", "✓", Shape.ROUND, Tone.GOOD),
    Phase.FAILED: Look("failed", "✗", Shape.NOTCH, Tone.BAD),
    Phase.CIRCUIT_OPEN: Look("circuit open", "!", Shape.NOTCH, Tone.BAD),
    Phase.CANCELLED: Look("cancelled", "–", Shape.BOX, Tone.OFF),
}
ATTEMPTS: Mapping[str, Look] = {
    AttemptStatus.RUNNING: Look("running", "▶", Shape.PILL, Tone.BUSY),
    AttemptStatus.SUCCEEDED: Look("succeeded", "✓", Shape.ROUND, Tone.GOOD),
    AttemptStatus.FAILED: Look("failed", "✗", Shape.NOTCH, Tone.BAD),
    AttemptStatus.ABORTED: Look("aborted", "–", Shape.BOX, Tone.OFF),
    AttemptStatus.UNKNOWN: Look("unknown", "!", Shape.HEXAGON, Tone.ASK),
}
_STRANGE = Look("unknown", "?", Shape.BOX, Tone.IDLE)
_LOUDEST = (Tone.BAD, Tone.ASK, Tone.BUSY, Tone.CHECK, Tone.IDLE, Tone.GOOD, Tone.OFF)


def look_of(phase: str) -> Look:
    """How a phase is shown; one that this program does not know is shown as just that."""
    return LOOKS.get(phase, _STRANGE)


def loudest(counts: Mapping[str, int]) -> Tone:
    """The tone of a stack: that of the tasks in it which need a look most."""
    tones = {look_of(phase).tone for phase, count in counts.items() if count}
    return next((tone for tone in _LOUDEST if tone in tones), Tone.IDLE)


def counted(counts: Mapping[str, int]) -> str:
    """`2 ✗ failed, 40 ✓ completed`: what needs a look first."""
    parts = sorted((item for item in counts.items() if item[1]), key=lambda item: _LOUDEST.index(look_of(item[0]).tone))
    return ", ".join(f"{count:,} {look_of(phase).symbol} {look_of(phase).word}" for phase, count in parts)
