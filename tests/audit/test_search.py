"""`mailboxd search`: what is found, what cannot harm, and an index that may be thrown away."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from mailboxd.cli.commands.audit import moment, search_index
from mailboxd.core.events import Event, Kind
from mailboxd.core.model import Policy
from mailboxd.core.vocabulary import Gate, Verdict
from mailboxd.errors import DamagedError, Refused, UnavailableError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.ledger.search import Index, SearchHit, SearchQuery, fts_query
from tests.core.desk import DONE, Desk
from tests.e2e.support import Agent, task
from tests.ledger.shapes import require


def found(alpha: Agent, query: str, **said: Any) -> list[SearchHit]:
    hits = search_index(Workspace(alpha.root), query, **said)
    require(hits, list[SearchHit])
    return hits


def test_words_of_messages_results_and_events_are_found(alpha: Agent) -> None:
    kinds = {hit["type"] for hit in found(alpha, "result")}
    assert kinds == {"message", "result", "event"}
    arrived = next(hit for hit in found(alpha, "figures", kind="message", task="one") if "one.md" in hit["where"])
    assert (arrived["status"], arrived["phase"]) == ("done", "completed")
    assert "[figures]" in arrived["snippet"]
    assert found(alpha, '"net revenue"', kind="message")
    assert not found(alpha, '"revenue net"')
    assert found(alpha, "reven*")
    assert not found(alpha, "zebra")


@pytest.mark.parametrize(
    ("said", "tasks"),
    [
        ({"task": "two"}, {"two", "two.figures", "two.text"}),
        ({"task": "two.text"}, {"two.text"}),
        ({"agent": "beta", "kind": "result"}, {"two.figures"}),
        ({"agent": "BETA", "kind": "result"}, {"two.figures"}),
        ({"status": "failed"}, set()),
        ({"status": "done", "kind": "result"}, {"one", "two", "two.figures", "two.text"}),
        ({"until": "2020-01-01"}, set()),
        ({"since": "2020-01-01", "kind": "result"}, {"one", "two", "two.figures", "two.text"}),
        ({"limit": 1, "task": "one"}, {"one"}),
    ],
)
def test_filters_narrow_the_search(alpha: Agent, said: dict[str, Any], tasks: set[str]) -> None:
    assert {hit["task"] for hit in found(alpha, "result", **said)} == tasks


HOSTILE = [
    '"',
    "'",
    "a OR",
    "NEAR(",
    "* *",
    "x:y",
    "-",
    '"unclosed',
    "a AND NOT b",
    "^a",
    "{a b}",
    "text:",
    "\0",
    ";--",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_no_query_is_syntax(alpha: Agent, query: str) -> None:
    with suppress(Refused):
        found(alpha, query)


def test_operators_are_words() -> None:
    assert fts_query('a OR "b c" d* x"y') == '"a" "OR" "b c" "d"* "x""y"'


def test_reply_tokens_are_not_in_the_index(alpha: Agent) -> None:
    (dispatch,) = alpha.sent("task")
    token = dispatch.split("reply_token: ")[1].split()[0].strip("\"'")
    assert found(alpha, "figures")
    assert not found(alpha, token)
    assert token.encode() not in (alpha.root / ".mailboxd" / "search.db").read_bytes()


@pytest.mark.slow
def test_later_records_are_found_by_later_searches(alpha: Agent) -> None:
    assert not found(alpha, "giraffe")
    alpha.drop("more.md", task("more", "Count the giraffes and one giraffe"))
    alpha.run()
    assert found(alpha, "giraffe", task="more")


def test_a_dispatched_message_is_found_before_its_file_is_written(alpha: Agent) -> None:
    """It is written to outbox/ a second later, and an index reads each message once."""
    (sent,) = alpha.root.glob("mailbox/outbox/*/*.task.beta.two.figures.*")
    raw = sent.read_bytes()
    sent.unlink()
    (alpha.root / ".mailboxd" / "search.db").unlink(missing_ok=True)
    try:
        assert sent.name in {Path(hit["where"]).name for hit in found(alpha, "figures", kind="message", task="two")}
    finally:
        sent.write_bytes(raw)


SENTENCES = {
    "四半期の売上を要約してください。": ("四半期", "売上", "売上を", "要約"),
    "请总结第三季度的销售额。": ("季度", "销售额", "请总结"),
    "분기의 매출을 요약하세요.": ("분기", "매출"),
    "กรุณาสรุปยอดขายไตรมาสที่สาม": ("ยอดขาย", "ไตรมาส"),
}


def test_the_byte_order_mark_of_a_file_is_not_shown(tmp_path: Path) -> None:
    desk = Desk(database=tmp_path / "mailboxd.db")
    with desk.engine.batch():
        desk.engine.record(Event(Kind.ALARM, None, {"at": desk.engine.now, "what": "disk", "why": "\ufeffzeppelin"}))
    desk.store.close()
    with Index(tmp_path / "search.db", tmp_path / "mailboxd.db", lambda _path: None) as index:
        index.catch_up()
        (hit,) = index.find(SearchQuery("zeppelin"))
    assert "\ufeff" not in hit["snippet"]


@pytest.mark.parametrize("sentence", SENTENCES, ids=["Japanese", "Chinese", "Korean", "Thai"])
def test_a_word_is_found_in_a_sentence_without_spaces(tmp_path: Path, sentence: str) -> None:
    desk = Desk(database=tmp_path / "mailboxd.db")
    with desk.engine.batch():
        desk.engine.record(Event(Kind.ALARM, None, {"at": desk.engine.now, "what": "disk", "why": sentence}))
    desk.store.close()
    with Index(tmp_path / "search.db", tmp_path / "mailboxd.db", lambda _path: None) as index:
        index.catch_up()
        for word in SENTENCES[sentence]:
            (hit,) = index.find(SearchQuery(word))
            assert f"[{word}]" in hit["snippet"]
            shown = hit["snippet"].removeprefix("... ").removesuffix(" ...")
            assert shown.replace("[", "").replace("]", "") in f"ALARM disk: {sentence}"
        assert not index.find(SearchQuery("期四半"))
        assert not index.find(SearchQuery("출매"))


def test_an_index_of_an_earlier_version_is_made_again(tmp_path: Path) -> None:
    desk = Desk(database=tmp_path / "mailboxd.db")
    with desk.engine.batch():
        desk.engine.record(Event(Kind.ALARM, None, {"at": desk.engine.now, "what": "disk", "why": "四半期の売上"}))
    desk.store.close()
    with closing(sqlite3.connect(tmp_path / "search.db")) as db, db:
        db.execute("CREATE TABLE cursor (version TEXT NOT NULL, seq INTEGER NOT NULL, hash TEXT NOT NULL) STRICT")
        db.execute("INSERT INTO cursor VALUES ('4', 1, '')")
        db.execute("CREATE VIRTUAL TABLE texts USING fts5 (text)")
    with Index(tmp_path / "search.db", tmp_path / "mailboxd.db", lambda _path: None) as index:
        index.catch_up()
        assert index.find(SearchQuery("売上"))


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 500])
def test_an_index_that_is_gone_or_damaged_is_made_again(alpha: Agent, damage: bytes) -> None:
    before = found(alpha, "result")
    (alpha.root / ".mailboxd" / "search.db").write_bytes(damage)
    assert found(alpha, "result") == before
    (alpha.root / ".mailboxd" / "search.db").unlink()
    assert found(alpha, "result") == before


def test_a_damaged_database_is_not_blamed_on_the_index(alpha: Agent, tmp_path: Path) -> None:
    found(alpha, "result")
    state = tmp_path / "state"
    shutil.copytree(alpha.root / ".mailboxd", state, ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    before = (state / "search.db").read_bytes()
    (state / "mailboxd.db").write_bytes(b"no database at all" * 500)
    said = r"mailboxd\.db: .*file is not a database.*db rebuild --replace"
    with (
        Index(state / "search.db", state / "mailboxd.db", lambda _path: None) as index,
        pytest.raises(DamagedError, match=said),
    ):
        index.catch_up()
    assert (state / "search.db").read_bytes() == before


@pytest.mark.slow
def test_an_index_of_another_log_is_made_again(alpha: Agent) -> None:
    assert found(alpha, "result")
    assert alpha.call("db", "rebuild", "--replace").returncode == 0
    seqs = {row["seq"] for row in alpha.query("SELECT seq FROM v_events")}
    assert {hit["seq"] for hit in found(alpha, "result")} <= seqs
    assert {hit["type"] for hit in found(alpha, "result")} == {"message", "result", "event"}


@pytest.mark.slow
def test_the_index_is_no_part_of_the_record(alpha: Agent) -> None:
    before = alpha.query("SELECT count(*) AS n FROM v_events")
    assert alpha.call("search", "result", "--limit", "2").returncode == 0
    assert alpha.call("search", "zebra").returncode == 1
    assert alpha.query("SELECT count(*) AS n FROM v_events") == before
    assert alpha.call("db", "verify").returncode == 0
    assert (alpha.root / ".mailboxd" / "search.db").stat().st_mode & 0o777 == 0o600


def test_without_full_text_search_it_says_so(alpha: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    from mailboxd.ledger import search as index

    without = tuple(text.replace("fts5", "fts5_that_is_missing") for text in index._SCHEMA)
    monkeypatch.setattr(index, "_SCHEMA", without)
    with pytest.raises(UnavailableError, match=sqlite3.sqlite_version):
        found(alpha, "result")


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "2026-11-21T08:00", "10:00", "", "2026-11-21\n"])
def test_an_invalid_time_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        moment(text)


def test_a_day_counts_as_a_whole() -> None:
    assert moment("2026-02-28") == "2026-02-28T00:00:00.000Z"
    assert moment("2026-02-28", past=True) == "2026-03-01T00:00:00.000Z"
    assert moment("2026-02-28T08:00:00Z") == "2026-02-28T08:00:00.000Z"


def test_a_turn_is_found_by_its_agent(tmp_path: Path) -> None:
    desk = Desk(Policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("dora",)), database=tmp_path / "mailboxd.db")
    desk.give("t")
    desk.ends("t", DONE)
    desk.reviews("t", "dora", Verdict.APPROVED)
    with Index(tmp_path / "search.db", tmp_path / "mailboxd.db", lambda _path: None) as index:
        index.catch_up()
        hits = index.find(SearchQuery("dora", agent="dora", type="event"))
    kinds = {seq: event.kind for seq, event in desk.store.recorded_since(0)}
    assert Kind.TURN_ENDED in {kinds[hit["seq"]] for hit in hits}


def test_a_question_of_an_earlier_version_is_found(tmp_path: Path) -> None:
    """It counted its turns under the name that has since become a part of other events."""
    desk = Desk(database=tmp_path / "mailboxd.db")
    task = desk.give("t")
    with desk.engine.batch():
        desk.engine.record(
            Event(Kind.QUESTION_ASKED, task.id, {"at": desk.engine.now, "to": "boss", "text": "Why?", "turn": 2})
        )
    with Index(tmp_path / "search.db", tmp_path / "mailboxd.db", lambda _path: None) as index:
        index.catch_up()
        assert index.find(SearchQuery("why"))


def test_what_a_sentence_says_already_is_not_shown_twice(tmp_path: Path) -> None:
    desk = Desk(database=tmp_path / "mailboxd.db")
    with desk.engine.batch():
        data = {"at": desk.engine.now, "what": "disk", "why": "A number without a source."}
        desk.engine.record(Event(Kind.ALARM, None, data))
    desk.store.close()
    with Index(tmp_path / "search.db", tmp_path / "mailboxd.db", lambda _: None) as index:
        index.catch_up()
        (hit,) = index.find(SearchQuery("number"))
    assert hit["snippet"].count("without a source") == 1
