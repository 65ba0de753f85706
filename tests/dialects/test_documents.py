"""Real documents are results: none of thousands is asked about, or taken for a plan, a form or a refusal."""

from __future__ import annotations

import pytest

from mailboxd.core.outcomes import Results
from mailboxd.core.vocabulary import Turn
from mailboxd.formats.protocol.answer import Asked, read_answer
from tests.dialects.documents import LIST, NotFetched, documents

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

AGENTS = ("alpha", "beta", "gamma", "delta", "self")


def test_a_real_document_is_a_result_and_nothing_of_it_is_lost() -> None:
    assert len(LIST.read_text(encoding="utf-8").splitlines()) >= 2_430
    wrong: list[str] = []
    try:
        for name, text in documents():
            for turn in (Turn.WORK, Turn.SYNTHESIS, Turn.DISPATCH):
                said = read_answer(text, Asked(turn, AGENTS))
                if not isinstance(said, Results) or said.text != text.strip().lstrip("\ufeff"):
                    wrong.append(f"{turn} {name}: {said!r:.200}")
    except NotFetched as missing:
        pytest.skip(f"needs the network once: {missing}")
    assert wrong == []
