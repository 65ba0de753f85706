"""The style of each phase and attempt status: a word, a symbol, a shape and a tone, each sufficient by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.vocabulary import AttemptStatus, Phase


class Tone(StrEnum):
    """The meaning of a color; the style sheet defines the colors."""

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


PHASE_STYLES: Mapping[str, Style] = {
    Phase.SPEC_DRAFT: Style("spec draft", "…", Shape.CUT, Tone.CHECK),
    Phase.SPEC_REVIEW: Style("spec review", "?", Shape.CUT, Tone.CHECK),
    Phase.EXECUTION_READY: Style("ready", "○", Shape.BOX, Tone.IDLE),
    Phase.EXECUTING: Style("executing", "▶", Shape.PILL, Tone.BUSY),
    Phase.SPEC_GATE: Style("spec gate", "?", Shape.CUT, Tone.CHECK),
    Phase.QUALITY_GATE: Style("quality gate", "?", Shape.CUT, Tone.CHECK),
    Phase.AWAITING_APPROVAL: Style("awaiting approval", "‖", Shape.HEXAGON, Tone.ASK),
    Phase.READY_TO_RESUME: Style("ready to resume", "▷", Shape.PILL, Tone.BUSY),
    Phase.COMPLETED: Style("completed", "✓", Shape.ROUND, Tone.GOOD),
    Phase.FAILED: Style("failed", "✗", Shape.NOTCH, Tone.BAD),
    Phase.CIRCUIT_OPEN: Style("circuit open", "!", Shape.NOTCH, Tone.BAD),
    Phase.CANCELLED: Style("cancelled", "–", Shape.BOX, Tone.OFF),
}
ATTEMPT_STYLES: Mapping[str, Style] = {
    AttemptStatus.RUNNING: Style("running", "▶", Shape.PILL, Tone.BUSY),
    AttemptStatus.SUCCEEDED: Style("succeeded", "✓", Shape.ROUND, Tone.GOOD),
    AttemptStatus.FAILED: Style("failed", "✗", Shape.NOTCH, Tone.BAD),
    AttemptStatus.ABORTED: Style("aborted", "–", Shape.BOX, Tone.OFF),
    AttemptStatus.UNKNOWN: Style("unknown", "!", Shape.HEXAGON, Tone.ASK),
}
_UNKNOWN = Style("unknown", "?", Shape.BOX, Tone.IDLE)
_URGENCY = (Tone.BAD, Tone.ASK, Tone.BUSY, Tone.CHECK, Tone.IDLE, Tone.GOOD, Tone.OFF)


def style_of(phase: str) -> Style:
    """The style of a phase, or that of an unknown one."""
    return PHASE_STYLES.get(phase, _UNKNOWN)


def most_urgent_tone(counts: Mapping[str, int]) -> Tone:
    """The tone of a stack: that of its most urgent tasks."""
    tones = {style_of(phase).tone for phase, count in counts.items() if count}
    return next((tone for tone in _URGENCY if tone in tones), Tone.IDLE)


def counts_text(counts: Mapping[str, int]) -> str:
    """`2 ✗ failed, 40 ✓ completed`, most urgent first."""
    parts = sorted(
        (item for item in counts.items() if item[1]), key=lambda item: _URGENCY.index(style_of(item[0]).tone)
    )
    return ", ".join(f"{count:,} {style_of(phase).symbol} {style_of(phase).word}" for phase, count in parts)
