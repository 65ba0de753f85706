"""A task's page: how far it is, what happened, what below it needs a person, and each error once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mailboxd.core.model import Policy
from mailboxd.core.operator_orders import BY_NAME
from mailboxd.core.outcomes import Failed
from mailboxd.host.clock import SystemClock
from mailboxd.ledger.task_queries import Filter
from mailboxd.surfaces.web.page_models import EventsPage, MessagesPage, PageModels, TaskPage, TasksPage
from mailboxd.surfaces.web.workspaces import WebWorkspace, WebWorkspaces
from tests.cli.asking import PUBLISH, prepare
from tests.cli.stage import Stage, child, make
from tests.ledger.shapes import require_made_of
from tests.web.inside import Inside, inside

QUESTION = "---\ntype: question\n---\n\nWhich <b>figures</b>?\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


@pytest.fixture
def page(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return inside(stage, tmp_path / "state")


def _asks(stage: Stage, page: Inside) -> str:
    """The page of a task of which one subtask asks a person."""
    stage.create("q3", child("figures", "alpha"), child("report", "alpha", ("figures",)))
    stage.start()
    stage.end_turn("q3.figures", QUESTION)
    return f"/w/{page.key()}/t/q3"


def test_the_values_of_pages_are_what_their_types_say(stage: Stage, page: Inside) -> None:
    _asks(stage, page)
    stage.create("done")
    stage.start()
    stage.end_turn("done", "One.")
    assert stage.run("retry", "done").exit_code == 0
    stage.start()
    stage.end_turn("done", "Two.")
    stage.hold("q3", BY_NAME["cancel"], {"reason": "enough"}, "ann")
    place, models = WebWorkspace(stage.ws), PageModels(WebWorkspaces([stage.ws.root]), stage.clock)
    pages = {name: models.task(place, name) for name in ("q3", "q3.figures", "done")}
    for found in pages.values():
        require_made_of(found, TaskPage)
    assert pages["q3"]["below"]["items"]
    assert pages["q3"]["ending"]
    assert pages["done"]["diffs"]
    tasks = models.workspace(place, Filter(children=True), 1)
    assert tasks["workspace"]["attention"]
    require_made_of(tasks, TasksPage)
    require_made_of(models.log(place, "q3", 1), EventsPage)
    require_made_of(models.messages(place, "", 1), MessagesPage)
    stage.ws.database.unlink()
    tasks = models.workspace(place, Filter(), 1)
    assert tasks["workspace"]["error"]
    require_made_of(tasks, TasksPage)


def test_a_subtask_has_its_title_in_the_drawing_and_in_the_list(stage: Stage, page: Inside) -> None:
    path = _asks(stage, page)
    drawing = page.get(path).text.partition("<svg xmlns")[2].partition("</svg>")[0]
    assert "Do figures" in drawing
    assert "needs you · figures · alpha" in drawing
    assert "Do figures" in page.get(f"{path}/children").words


def test_how_far_it_is_counts_everything_below(stage: Stage, page: Inside) -> None:
    stage.create("q3", child("one", "alpha", (), child("a", "alpha"), child("b", "alpha")), child("two", "alpha"))
    stage.start()
    stage.end_turn("q3.two", "Here it is: 42.")
    shown = page.get(f"/w/{page.key()}/t/q3")
    assert '<progress max="4" value="1"' in shown.text, shown.words
    assert "1 of 4 subtasks done" in shown.words


def test_the_question_of_a_subtask_is_answered_on_the_page_of_the_task(stage: Stage, page: Inside) -> None:
    path = _asks(stage, page)
    shown = page.get(path)
    assert "Subtasks that need you 1" in shown.words
    assert "Which &lt;b&gt;figures&lt;/b&gt;?" in shown.text
    refused = page.form(path, order="answer", text=" ")
    assert refused.status == 409
    assert refused.text.count("nothing is written") == 2, "above, and in its place"
    assert page.form(path, order="answer", text="The audited ones.").headers["location"] == f"{path}?done=answer"
    assert "Subtasks that need you" not in page.get(path).words
    happened = page.get(f"{path}.figures").text.partition('id="milestones"')[2].partition("</section>")[0]
    assert happened.count("Which ") == 1, "a question is one line, with its answer"
    assert "Answered by" in happened


def test_the_request_of_a_subtask_is_decided_on_the_page_of_the_task(stage: Stage, page: Inside) -> None:
    stage.clock.text = SystemClock().now()
    stage.create("q3", replace(child("publish", "alpha"), planned_actions=(PUBLISH,)), child("other", "alpha"))
    stage.start()
    stage.end_turn("q3.publish", "The site is built.")
    (request,) = prepare(stage)
    path = f"/w/{page.key()}/t/q3"
    assert "Subtasks that need you 1" in page.get(path).words
    assert "make publish, in site/" in page.get(path).words
    stale = page.form(path, decision="approved", digest="0" * 64)
    assert stale.status == 409
    assert page.form(path, decision="approved").headers["location"] == f"{path}?done=approved"
    assert [row["status"] for row in stage.sql("SELECT status FROM v_approvals WHERE id = ?", request)] == ["approved"]


def test_what_is_answered_already_is_said_and_changes_nothing(stage: Stage, page: Inside) -> None:
    path = _asks(stage, page)
    fields = page.filled(path, order="answer", text="The audited ones.")
    assert page.post(path, fields).status == 303
    again = page.post(path, fields)
    assert again.status == 409
    assert "has no open question" in again.words


@pytest.mark.slow
def test_an_error_is_said_once(stage: Stage, page: Inside) -> None:
    stage.create("crawl", policy=Policy(max_attempts=1))
    stage.start()
    stage.end_turn("crawl", Failed("the site answers 503 <i>"))
    seen = page.get(f"/w/{page.key()}/t/crawl").text.partition('id="record"')[0]
    assert seen.count("the site answers 503 &lt;i&gt;") == 1


@pytest.mark.slow
def test_the_full_log_is_a_page_of_its_own_in_parts(stage: Stage, page: Inside) -> None:
    path = _asks(stage, page)
    for _ in range(60):
        stage.run("pause", "q3.report")
        stage.run("resume", "q3.report")
    assert f'href="{path}.report/log"' in page.get(f"{path}.report").text
    first, second = page.get(f"{path}.report/log"), page.get(f"{path}.report/log?page=2")
    assert "page 1 of 2" in first.words
    assert first.text.count('class="seq"') == 100
    numbers = [text.text.partition('class="seq">')[2].partition("<")[0] for text in (first, second)]
    assert int(numbers[0]) > int(numbers[1])
    assert page.get(f"{path}.nothing/log").status == 404


def test_a_turn_has_its_model_and_the_digest_and_text_of_its_prompt(stage: Stage, page: Inside) -> None:
    stage.create("job")
    stage.start()
    with stage.engine() as engine:
        raw = b"---\nreply_token: sesame\n---\n\nCount <b>ships</b>.\n"
        prompt = engine.store.prompts.keep(raw, 1000, is_message=False)
        (order,) = engine.store.outbox.pending("9999", 2)
        engine.store.outbox.begin(order.id, "boot", prompt)
    shown = page.get(f"/w/{page.key()}/t/job")
    assert "work by alpha, running" in shown.words
    stage.end_turn("job", Failed("overloaded", run_id="run_9", model="stub/stub-1"))
    shown = page.get(f"/w/{page.key()}/t/job")
    assert "stub/stub-1" in shown.words
    assert prompt.sha256 in shown.words
    assert "Count &lt;b&gt;ships&lt;/b&gt;." in shown.text
    assert "sesame" not in shown.text


def test_a_prompt_whose_text_is_not_kept_has_its_digest_alone(stage: Stage, page: Inside) -> None:
    stage.create("job")
    stage.start()
    with stage.engine() as engine:
        prompt = engine.store.prompts.keep(b"Count the ships.", 5, is_message=False)
        (order,) = engine.store.outbox.pending("9999", 2)
        engine.store.outbox.begin(order.id, "boot", prompt)
    stage.end_turn("job", Failed("overloaded"))
    shown = page.get(f"/w/{page.key()}/t/job")
    assert "model not reported" in shown.words
    assert f"{prompt.sha256} (its text was too large to be kept)" in shown.words
    assert "What it was asked" not in shown.words
