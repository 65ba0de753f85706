"""Searches that a person names, and what the palette leads to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mailboxd.errors import Refused
from mailboxd.formats.user import registry, saved_searches, standstills
from tests.cli.stage import Stage, make
from tests.web.inside import Inside, inside


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


@pytest.fixture
def page(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return inside(stage, tmp_path / "state")


def test_a_search_is_named_found_again_and_deleted(page: Inside) -> None:
    path = f"/w/{page.key()}?q=crawl&state=done&junk=1"
    kept = f"/w/{page.key()}?state=done&q=crawl"
    assert page.form(path, save="My <b>crawls</b>").headers["location"] == f"{kept}&done=saved"
    for place in (f"/w/{page.key()}", "/search"):
        assert "My &lt;b&gt;crawls&lt;/b&gt;" in page.get(place).text
    assert f'href="{kept.replace("&", "&amp;")}"' in page.get("/search").text
    assert page.form(kept, forget="My <b>crawls</b>").headers["location"] == f"{kept}&done=forgotten"
    assert "crawls" not in page.get("/search").text


def test_a_search_without_a_name_is_refused_beside_the_field(page: Inside) -> None:
    refused = page.form("/search?q=revenue", save=" ")
    assert refused.status == 409
    assert 'aria-describedby="problem-searches"' in refused.text
    assert page.form("/search?q=revenue&type=result", save="Revenue").headers["location"] == (
        "/search?q=revenue&type=result&done=saved"
    )


def test_a_search_that_is_too_long_to_be_kept_is_refused_for_that(page: Inside) -> None:
    refused = page.form("/search?q=" + "%E4%B8%AD" * 199, save="Long")
    assert refused.status == 409
    assert "too long" in refused.words
    assert "has no name" not in refused.words


def test_files_that_are_nested_too_deeply_count_as_damaged(page: Inside, stage: Stage, tmp_path: Path) -> None:
    page.get("/")
    folder = tmp_path / "state" / "mailboxd"
    for name in (saved_searches.SEARCHES, registry.FILE, *(f"seen/{one.name}" for one in (folder / "seen").iterdir())):
        file = folder / name
        file.write_text("[" * 100_000)
        file.chmod(0o600)
    for path in ("/", f"/w/{page.key()}", "/search?q=x", "/palette?q="):
        assert page.get(path).status == 200
    (folder / standstills.STANDSTILL).write_text("[" * 100_000)
    found = standstills.standstill({"XDG_STATE_HOME": str(tmp_path / "state")})
    assert found is not None
    assert "damaged" in found.note


def test_a_hit_says_whose_workspace_it_is_of(stage: Stage, page: Inside) -> None:
    stage.create("q3-report")
    assert re.search(r"q3-report</span> · <bdi>alpha</bdi> in", page.get("/search?q=report").text)


def test_only_addresses_of_searches_are_kept(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    saved_searches.save_search(environ, "good", "/search?q=x")
    file = tmp_path / "mailboxd" / saved_searches.SEARCHES
    kept = json.loads(file.read_text())
    evil = [["evil", "javascript:alert(1)"], ["away", "//evil.example/"], ["out", "/leave"], ["odd"], 7]
    file.write_text(json.dumps([*kept, *evil[:3]]))
    assert saved_searches.searches(environ) == [("good", "/search?q=x")]
    file.write_text(json.dumps([*kept, *evil]))
    assert saved_searches.searches(environ) == [], "a damaged file counts as empty"
    for number in range(saved_searches.MOST_SEARCHES):
        saved_searches.save_search(environ, f"s{number}", "/search?q=x")
    with pytest.raises(Refused, match="saved already"):
        saved_searches.save_search(environ, "one more", "/search?q=x")
    assert len(saved_searches.searches(environ)) == saved_searches.MOST_SEARCHES


def test_the_palette_leads_to_pages_saved_searches_and_tasks(stage: Stage, page: Inside) -> None:
    stage.create("q3-report")
    page.form("/search?q=revenue", save="Report of revenue")
    every = json.loads(page.get("/palette?q=").text)
    assert {"Overview", "New task", "alpha", "Report of revenue"} <= {one["label"] for one in every}
    found = json.loads(page.get("/palette?q=report").text)
    assert [one["kind"] for one in found] == ["search", "task"]
    assert found[1]["href"] == f"/w/{page.key()}/t/q3-report"
    assert found[1]["hint"] == "q3-report · waiting · alpha", "the same task of another workspace reads otherwise"
    assert json.loads(page.get("/palette?q=nothing%20of%20this").text) == []
