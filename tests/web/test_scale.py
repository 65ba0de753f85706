"""Twenty thousand tasks: what a page draws and sends stays bounded, and a chain of two hundred can be read."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.stage import Stage, child, make
from tests.ledger.crowd import multiply
from tests.web.serve import Browser, served

pytestmark = pytest.mark.slow

MOST_BYTES = 400_000


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    root: Path = tmp_path_factory.mktemp("crowd")
    stage: Stage = make(root / "alpha")
    stage.create("big", child("a"), child("sum", "alpha", ("a",)))
    stage.start()
    stage.create("chain", *(child(f"k{n}", "alpha", (f"k{n - 1}",) if n else ()) for n in range(198)))
    with closing(sqlite3.connect(stage.ws.database)) as db, db:
        multiply(db, "big.a", 20_000, {"failed": 3, "circuit_open": 500})
        _attempts(db)
    with served(stage.ws.root, {"XDG_STATE_HOME": str(root / "state")}) as browser:
        yield browser


def _attempts(db: sqlite3.Connection) -> None:
    """One attempt of ten seconds for each completed one of the crowd, one after the other, from eight o'clock."""
    db.execute("UPDATE attempts SET started_at = '2026-11-21T08:00:00.000Z', finished_at = '2026-11-21T08:00:10.000Z'")
    columns = [row[1] for row in db.execute("PRAGMA table_info(attempts)")]
    time = "strftime('%Y-%m-%dT%H:%M:%S.000Z', '2026-11-21T08:00:{}', '+' || t.n || ' seconds')"
    own = {"id": "a.id || t.seq", "task": "t.id", "started_at": time.format("00"), "finished_at": time.format("10")}
    values = ", ".join(own.get(name, f"a.{name}") for name in columns)
    crowd = "SELECT id, seq, row_number() OVER () AS n FROM v_tasks WHERE local_id LIKE 'big.a-%'"
    db.execute(
        f"INSERT INTO attempts ({', '.join(columns)}) SELECT {values} FROM ({crowd}) t,"
        " (SELECT * FROM attempts LIMIT 1) a"
    )


def test_the_timeline_of_a_crowd_is_columns_until_one_zooms_in(crowd: Browser) -> None:
    path = f"/w/{crowd.key()}/t/big"
    whole = crowd.get(path).text
    assert 10 < whole.count('class="column good"') <= 120
    assert whole.count('class="bar ') <= 8
    near = crowd.get(f"{path}?from=1795252800&until=1795252805").text
    assert "column good" not in near
    assert 10 <= near.count('class="bar ') <= 40
    assert "Zoom out" in near
    for nonsense in ("from=x&until=y", "from=5&until=1", "from=nan&until=inf", "from=-1&until=1e99"):
        assert crowd.get(f"{path}?{nonsense}").status == 200


@pytest.mark.parametrize(
    "path",
    ["/", "/w/{key}", "/w/{key}?children=1", "/w/{key}?q=a-1", "/w/{key}?children=1&page=300", "/w/{key}/t/big",
     "/w/{key}/t/big/children", "/w/{key}/t/big.a-7", "/w/{key}/t/big.sum"],
)  # fmt: skip
def test_every_page_stays_small(crowd: Browser, path: str) -> None:
    answer = crowd.get(path.format(key=crowd.key()))
    assert answer.status == 200
    assert len(answer.text) < MOST_BYTES
    assert answer.text.count('class="node ') <= 200
    assert answer.text.count("<li") + answer.text.count("<tr") <= 160


def test_the_overview_counts_tasks_that_need_attention(crowd: Browser) -> None:
    words = crowd.get("/").words
    assert "500 tasks stopped for one reason" in words
    assert "Needs you 2 " in words, "these are one item, and that no daemon runs is the other"


def test_a_stack_in_the_drawing_has_a_count_and_a_link(crowd: Browser) -> None:
    key = crowd.key()
    answer = crowd.get(f"/w/{key}/t/big")
    assert 10 < answer.text.count('class="node ') < 25
    assert "Subtasks 20,002" in answer.words
    assert f'href="/w/{key}/t/big/children"' in answer.text
    first = crowd.get(f"/w/{key}/t/big/children?state=done:%20failed")
    assert first.text.count("data-row") == 3
    last = crowd.get(f"/w/{key}/t/big/children?page=401")
    assert "page 401 of 401" in last.words


def test_workspaces_that_need_attention_come_first(tmp_path: Path) -> None:
    roots = [make(tmp_path / name).ws.root for name in ("quiet", "troubled", "silent")]
    with closing(sqlite3.connect(roots[1] / ".mailboxd" / "mailboxd.db")) as db:
        db.execute("DROP TABLE tasks")
    with served(roots[0], {"XDG_STATE_HOME": str(tmp_path / "state")}, *map(str, roots)) as browser:
        shown = browser.get("/").text
    unwell, _, chips = shown.partition('id="workspaces"')
    assert re.findall(r'class="path">[^<]*/(\w+)<', unwell) == ["troubled"], "what is unwell is above all"
    assert re.findall(r'title="[^"]*/(\w+)"', chips) == ["troubled", "quiet", "silent"]


def test_two_hundred_nodes_are_drawn_each_with_its_name(crowd: Browser) -> None:
    text = crowd.get(f"/w/{crowd.key()}/t/chain").text
    drawing = text[text.index("<svg xmlns") : text.index("</svg>", text.index("<svg xmlns"))]
    labels = set(re.findall(r">○ Do (k\d+)</text>", drawing))
    assert labels == {f"k{n}" for n in range(198)}
