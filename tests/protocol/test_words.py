"""The words of other tools: what is the same key, what is near to one, and what restrains."""

from __future__ import annotations

import pytest

from mailboxd.formats.protocol.words import (
    BOOKKEEPING,
    FOREIGN,
    IDLE,
    KEYS,
    foreign,
    foreign_letter,
    instead,
    meant,
    restrains,
    skeleton,
    spelled,
)


@pytest.mark.parametrize("key", ["depends_on", "Depends-On", "dependsOn", "DEPENDS ON", " depends__on ", "ｄepends_on"])
def test_a_key_has_one_name_in_every_spelling(key: str) -> None:
    assert spelled(key) == "depends_on"


@pytest.mark.parametrize(
    ("key", "name"), [("blockedBy", "depends_on"), ("Due Date", "deadline"), ("assigned-to", "agent")]
)
def test_the_words_of_other_tools_have_a_name_here(key: str, name: str) -> None:
    assert KEYS[spelled(key)] == name


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("budget_udsd", "budget_usd"),
        ("budgеt_usd", "budget_usd"),  # a Cyrillic letter
        ("bugdet_usd", "budget_usd"),
        ("depnds_on", "depends_on"),
        ("dpends_n", "depends_on"),
        ("revieweers", "reviewers"),
        ("agnet", "agent"),
        ("dead1ine", "deadline"),
    ],
)
def test_a_misspelt_key_is_near_to_the_one_that_was_meant(key: str, name: str) -> None:
    assert meant(key, KEYS) == name or meant(key, ["budget_usd", "reviewers"]) == name
    assert restrains(key)


@pytest.mark.parametrize("key", ["date", "created", "author", "mood", "url", "aliases", "version", "tags", "location"])
def test_common_keys_of_notes_are_near_to_nothing_that_restrains(key: str) -> None:
    assert not restrains(key)


@pytest.mark.parametrize("key", ["approval", "requires_approval", "Gate", "max_cost", "review-by", "signoff", "limit"])
def test_a_word_of_restraint_in_a_key_restrains(key: str) -> None:
    assert restrains(key)


@pytest.mark.parametrize(
    "key",
    [
        *("requires_aproval", "requiresAproval", "needs_aprovals", "must_be_aproved_by_approvr", "needs_reviw"),
        *("human_confirmaton", "depnds_on_task", "permisson_needed", "spending_limts", "total_budgt", "sign_off"),
        *("stop-befroe", "requires_autorization", "Dead-Line", "dеpends-on-task"),  # the last with a Cyrillic letter
    ],
)
def test_so_does_a_misspelt_one(key: str) -> None:
    assert restrains(key)


@pytest.mark.parametrize(
    "key",
    [
        *("last_reviewed", "approved_on", "preview_url", "is_assigned", "content_type", "update_date", "aftermath"),
        *("co_authors", "wall_clocks", "undue_haste", "afternoon", "table_of_contents", "revision", "approach", "rate"),
    ],
)
def test_what_is_near_to_such_a_word_by_chance_does_not(key: str) -> None:
    assert not restrains(key)


def test_what_is_spelt_right_is_no_misspelling() -> None:
    assert not meant("Budget-USD", ["budget_usd"])
    assert not meant("budget_usd", ["budget_usd", "budget_used"])


def test_words_that_look_alike_have_one_skeleton_and_the_letter_is_named() -> None:
    assert skeleton("reviеwеrs") == "reviewers"
    assert foreign_letter("reviеwers") == (5, "CYRILLIC SMALL LETTER IE")
    assert foreign_letter("reviewers") is foreign_letter("期限") is None
    assert skeleton("2026") == "2026"


OURS = ("agent", "approval", "budget_usd", "deadline", "depends_on", "limit", "repeat", "reviewers", "timeout")


@pytest.mark.parametrize("word", [word for word in FOREIGN if word not in OURS])
def test_what_restrains_in_other_languages_restrains_in_every_spelling(word: str) -> None:
    assert FOREIGN[word] in OURS
    for spelling in (word, word.upper(), word.replace("_", " ").title(), word.replace("'", "’")):
        assert foreign(spelling) == FOREIGN[word], spelling
        assert restrains(spelling)
        assert instead(spelling, "x")


@pytest.mark.parametrize(
    ("key", "name"),
    [("faellig am", "deadline"), ("echeance", "deadline"), ("zustaendig", "agent"), ("pruefer", "reviewers")],
)
def test_accents_may_be_missing(key: str, name: str) -> None:
    assert foreign(key) == name


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("späteste Frist", "2026-12-03", "`deadline: 2026-12-03`"),
        ("项目负责人", "beta", "`agent: beta`"),
        ("budget cap", "3 EUR", "`budget_usd: 3`"),
        ("maximum price", "2.50", "`budget_usd: 2.50`"),
        ("max_time", "30m", "`timeout: 30m`"),
        ("limit", "3", "`budget_usd`, `budget_tokens`, `timeout` or `max_attempts`"),
        ("needs_reviw", "beta", "`reviewers: beta`"),
        ("requires_aproval", "true", "`## Planned Actions`"),
        ("deadline_soft", "`x`", "`deadline: ...`"),
    ],
)
def test_the_line_to_write_instead_is_named(key: str, value: str, line: str) -> None:
    assert restrains(key)
    assert line in instead(key, value)


@pytest.mark.parametrize(
    "key",
    [
        *sorted(BOOKKEEPING | IDLE),
        *("autor", "titel", "beschreibung", "erstellt am", "datum", "étiquettes", "auteur", "fecha", "etiquetas"),
        *("автор", "дата", "теги", "标题", "标签", "作者", "创建时间", "タイトル", "作成日", "タグ", "许可证"),
    ],
)
def test_what_keeps_notes_in_order_restrains_in_no_language(key: str) -> None:
    assert not restrains(key)
