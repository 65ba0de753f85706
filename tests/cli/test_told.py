"""What a person said with an order, how a vote went, what reviewers found and what was made: shown and found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.events import Role
from mailboxd.core.inputs import FileMade, ReviewGiven, ReviewKind
from mailboxd.core.model import Finding, Overrides, PlannedChild, Policy
from mailboxd.core.vocabulary import Gate, Join, Verdict
from tests.cli.stage import Stage, make, task_of

QUESTION = "---\ntype: question\n---\nWhich figures?\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


def given(stage: Stage, name: str) -> list[tuple[str, str]]:
    return [(one["order"], one["note"]) for one in stage.json("show", name)["given"]]


def found(stage: Stage, words: str) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = stage.json("search", words)
    return result


def test_an_answer_stays_on_record_with_its_words(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", QUESTION)
    assert stage.run("answer", "job", "the audited ones of zanzibar").exit_code == 0
    assert given(stage, "job") == [("answer", "the audited ones of zanzibar")]
    shown = stage.run("show", "job").output
    assert "Said with orders" in shown
    assert "the audited ones of zanzibar" in shown
    assert "; answer: the audited ones of zanzibar" in stage.run("log", "job").output
    assert {hit["task"] for hit in found(stage, "zanzibar")} == {"job"}


@pytest.mark.parametrize(("order", "flag"), [("pause", "--note"), ("cancel", "--reason"), ("retry", "--note")])
def test_words_with_an_order_outlive_it(stage: Stage, order: str, flag: str) -> None:
    stage.create("job")
    if order == "retry":
        stage.start()
        stage.end_turn("job", "---\ntype: reply\nstatus: done\n---\n\n## Results\n\nFine work.\n")
    assert stage.run(order, "job", flag, "as ann wished").exit_code == 0
    stage.clock.advance(11)
    stage.carry_out_held()
    assert (order, "as ann wished") in given(stage, "job")


def test_a_note_to_work_that_pauses_reaches_its_next_attempt(stage: Stage) -> None:
    stage.create("job", policy=Policy(max_attempts=3))
    stage.start()
    stage.end_turn("job", "---\ntype: reply\nstatus: failed\n---\n\n## Error\n\nNo network.\n")
    assert stage.json("show", "job")["not_before"]
    assert stage.run("retry", "job", "--note", "the network is back").exit_code == 0
    assert "the network is back" in stage.json("show", "job")["findings"]
    assert given(stage, "job") == [("retry", "the network is back")]


def test_what_a_reviewer_found_is_shown_with_its_place_and_found_by_a_search(stage: Stage) -> None:
    stage.create("job", policy=Policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("carol",)))
    stage.start()
    stage.end_turn("job", "The sum is 41.")
    finding = Finding("major", "Fix the zucchini sum", "sum.py", 17, "https://example.org/pr/3")
    review = ReviewGiven(ReviewKind.QUALITY, Verdict.CHANGES_REQUESTED, "Wrong sum", (finding,))
    with stage.engine() as engine:
        engine.handle(task_of(engine, "job").id, review, Role.QUALITY_REVIEWER, "carol")
    (row,) = stage.json("show", "job")["reviews"]
    assert row["findings"] == [
        {
            "severity": "major", "message": "Fix the zucchini sum", "file": "sum.py", "line": 17,
            "artifact_uri": "https://example.org/pr/3",
        }
    ]  # fmt: skip
    assert "major     sum.py, line 17, https://example.org/pr/3" in stage.run("show", "job").output
    assert found(stage, "zucchini")
    assert found(stage, '"sum.py"')


def test_what_is_elsewhere_has_no_hash_until_somebody_has_fetched_it(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    made = FileMade("other", "https://example.org/ticket/7", "", "the ticket")
    with stage.engine() as engine:
        engine.handle(task_of(engine, "job").id, made, Role.EXECUTOR, "alpha")
    (artifact,) = stage.json("show", "job")["artifacts"]
    assert (artifact["uri"], artifact["sha256"]) == ("https://example.org/ticket/7", None)
    assert stage.sql("SELECT sha256 FROM v_artifacts") == [{"sha256": ""}]
    assert "https://example.org/ticket/7  not fetched" in stage.run("show", "job").output
    assert found(stage, '"example.org/ticket"')


def test_the_hash_of_no_text_that_was_recorded_before_is_shown_as_not_fetched(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    with stage.engine() as engine:
        for uri in ("https://example.org/ticket/7", "workspace:empty.txt"):
            made = FileMade("other", uri, of_nothing, uri)
            engine.handle(task_of(engine, "job").id, made, Role.EXECUTOR, "alpha")
    found_ = {one["uri"]: one["sha256"] for one in stage.json("show", "job")["artifacts"]}
    assert found_ == {"https://example.org/ticket/7": None, "workspace:empty.txt": of_nothing}


def test_a_vote_is_shown_with_its_dissent(stage: Stage) -> None:
    vote = PlannedChild("vote", ("alpha", "beta", "carol"), "Vote", overrides=Overrides(join=Join.MAJORITY))
    stage.create("panel", vote)
    votes = stage.json("show", "panel.vote")["votes"]
    assert [(one["agent"], one["said"], one["why"], one["counts"]) for one in votes] == [
        (agent, "", "has not voted", False) for agent in ("alpha", "beta", "carol")
    ]
    assert stage.json("show", "panel")["votes"] == votes, "its agent makes the result of this"


def test_the_summary_is_what_the_agent_said_as_such(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    said = "---\ntype: reply\nstatus: done\nsummary: It pays.\n---\n\n## Results\n\n# Report\n\nLong words.\n"
    stage.end_turn("job", said)
    task = stage.json("show", "job")
    assert task["result_summary"] == "It pays."
    assert task["results"] == "# Report\n\nLong words."
