"""What makes a spec weak: a rule that anybody can check, not a matter of taste (protocol section 4).

A spec is weak when it says no goal, or when nothing in it says how to tell that the work is done: no acceptance
criterion, no expected output and no check; or only criteria that are nothing but words that cannot be checked. Such a
criterion has at least one of the VAGUE words, and nothing is left of it when these, the FILLERS, and the words that
the goal says already are taken away: "The report is good" says nothing that "Write the report" does not. One criterion
that does say something is enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mailboxd.core.terms import Weak
from mailboxd.core.types import Spec

VAGUE = (
    "acceptable", "adequate", "adequately", "all right", "appropriate", "appropriately", "as agreed", "as discussed",
    "as expected", "as necessary", "as needed", "as required", "asap", "best effort", "best practice",
    "best practices", "better", "clean", "complete", "completed", "correct", "correctly", "decent", "done", "etc",
    "excellent", "fine", "finished", "good", "great", "high quality", "in order", "n/a", "nice", "none", "ok", "okay",
    "perfect", "professional", "proper", "properly", "reasonable", "reasonably", "robust", "satisfactory",
    "satisfying", "sensible", "so on", "sound", "state of the art", "successful", "successfully", "sufficient",
    "suitable", "tba", "tbd", "thorough", "thoroughly", "to be agreed", "to be decided", "todo", "usable",
    "user friendly", "well",
)  # fmt: skip
"""Words that only say that it is good, or that it will be said later."""

FILLERS = (
    "a", "all", "an", "and", "any", "are", "as", "at", "be", "been", "by", "can", "code", "everything", "for", "has",
    "have", "if", "in", "is", "it", "its", "job", "looks", "made", "manner", "must", "of", "on", "or", "output",
    "outputs", "quality", "quite", "result", "results", "shall", "should", "task", "that", "the", "thing", "things",
    "this", "to", "very", "was", "way", "were", "when", "where", "which", "will", "with", "work", "working", "works",
)  # fmt: skip
"""Words that say nothing by themselves."""

GOAL, CRITERIA, CHECKS = "goal", "acceptance_criteria", "checks"

_WORD = re.compile(r"[^\W_]+(?:[/'’][^\W_]+)*")
_PHRASES = sorted((phrase.split() for phrase in VAGUE), key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class Weakness:
    """One thing that a spec lacks: the field that has to be mended, and what is wrong, in a sentence."""

    field: str
    problem: str


def weaknesses(spec: Spec, weak: Weak, refused: tuple[str, ...] = ()) -> tuple[Weakness, ...]:
    """What `spec` lacks, most important first; empty when it is complete.

    Where missing criteria are derived (`weak`), vague ones pass as well: their sender gets what he asked for.
    `refused` says of each check that may not run here why not.
    """
    found = []
    if not spec.goal.strip():
        found.append(Weakness(GOAL, "it does not say what is to be achieved"))
    said = [text for text in (*spec.acceptance_criteria, spec.expected_output) if text.strip()]
    if not said and not spec.checks:
        found.append(Weakness(CRITERIA, "it has no acceptance criterion and no expected output"))
    elif weak is not Weak.DERIVE and not spec.checks and all(is_vague(text, spec.goal) for text in said):
        quoted = "; ".join(dict.fromkeys(f'"{" ".join(text.split())[:80]}"' for text in said[:3]))
        found.append(Weakness(CRITERIA, f"nothing in its criteria can be checked: {quoted}"))
    return (*found, *(Weakness(CHECKS, why) for why in refused))


def fields(found: tuple[Weakness, ...]) -> tuple[str, ...]:
    """The fields that are weak, each once."""
    return tuple(dict.fromkeys(weakness.field for weakness in found))


def say(found: tuple[Weakness, ...]) -> str:
    """All of it in one sentence for a person."""
    return "; ".join(weakness.problem for weakness in found)


def is_vague(criterion: str, goal: str = "") -> bool:
    """Whether a criterion is nothing but words that cannot be checked; one without any word is."""
    words = _words(criterion)
    left, vague = _without_phrases(words)
    nothing = {*FILLERS, *_words(goal)}
    return not words or (vague and all(word in nothing for word in left))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _without_phrases(words: list[str]) -> tuple[list[str], bool]:
    """`words` without the vague phrases among them, and whether there were any."""
    left: list[str] = []
    at = 0
    while at < len(words):
        phrase = next((p for p in _PHRASES if words[at : at + len(p)] == p), None)
        if phrase is None:
            left.append(words[at])
        at += len(phrase) if phrase else 1
    return left, len(left) < len(words)
