"""A short answer that refuses, promises, asks or only claims to be done is asked about, in whatever language it is."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import yaml

from mailboxd.core.outcomes import Correction, Failure, Question, Results, Unclear
from mailboxd.formats.protocol import evasions, phrases
from mailboxd.formats.protocol.answer import Asked, read_answer
from tests.dialects.test_answers import CASES as ANSWERS

_FILE = yaml.load(Path(__file__).with_name("languages.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
SECOND = {"refused": Failure, "promised": Failure, "asked": Question, "done": Results, "unknown": Results}
"""What the same text is when it is sent again."""
CASES = [
    pytest.param(text.strip(), kind, id=f"{language}-{kind}-{number}")
    for language, kinds in _FILE.items()
    for kind, texts in kinds.items()
    for number, text in enumerate(texts)
    if kind in SECOND
]
RESULTS: list[str] = _FILE["results"]["results"]


@pytest.mark.parametrize(("text", "kind"), CASES)
def test_it_is_asked_about_once_and_then_counts_as_it_stands(text: str, kind: str) -> None:
    first = read_answer(text, Asked())
    assert isinstance(first, Unclear), first
    assert first.is_claim
    again = read_answer(text, Asked(correction=Correction(first.problems, 1, text)))
    assert isinstance(again, SECOND[kind]), again


@pytest.mark.parametrize("text", RESULTS, ids=range(len(RESULTS)))
def test_what_only_sounds_alike_is_a_result(text: str) -> None:
    assert read_answer(text, Asked()) == Results(text)


def test_each_language_has_a_pattern_for_everything() -> None:
    assert len(phrases.LANGUAGES) >= 13
    for language in phrases.LANGUAGES:
        assert all(getattr(language, field) for field in phrases.Phrases.__dataclass_fields__)


BEFORE = [pytest.param(text, marks=pytest.mark.soak) for text in ("x", "7", "_", "'", "请", "(", "; ", "-", "…")]
SAID = [*(str(param.values[0]) for param in CASES), *RESULTS, *(case["text"] for case in ANSWERS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_REFUSES", "_FAILS", "_NEEDS", "_IGNORANT"])
@pytest.mark.parametrize("before", ["", "é", "(, ", *BEFORE])
def test_a_phrase_is_found_wherever_a_search_at_each_character_finds_it(name: str, before: str) -> None:
    pattern: re.Pattern[str] = getattr(evasions, name)
    everywhere = re.compile(pattern.pattern.removeprefix(evasions._anywhere("").pattern.removesuffix("(?:)")))
    assert everywhere.pattern != pattern.pattern
    for text in SAID:
        for sentence in evasions._sentences(evasions._folded(text)):
            parts = [sentence[at:] for at in range(0, len(sentence), 7)]
            for said in (before + sentence, f"well {before}{sentence}", *parts):
                assert bool(pattern.search(said)) is bool(everywhere.search(said)), said


_REPEATED = (
    "leider, ",
    "lo siento, ",
    ",",
    "我",
    "ich kann ",
    "a.",
    "は",
    "수 ",
    "no ",
    "sure, ",
    "я ",
    "file ",
    "error: ",
)


@pytest.mark.parametrize("part", _REPEATED)
def test_a_text_is_judged_in_linear_time(part: str) -> None:
    text = (part * 700)[: evasions.MOST - 1]
    begin = time.process_time()
    read_answer(f"{text}x", Asked())
    assert time.process_time() - begin < 0.5
