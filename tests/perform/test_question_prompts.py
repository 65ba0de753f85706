"""Questions at OpenClaw's prompts: asked, answered there or elsewhere, and asked again after a failure."""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.effects import RunTurn
from mailboxd.engine import open
from mailboxd.engine.engine import Engine
from mailboxd.formats import config
from mailboxd.perform.gateway_calls import GatewayCalls
from mailboxd.perform.process_table import Caps, ProcessTable
from mailboxd.perform.question_prompts import AGAIN, BY, MOST_AGAIN, QuestionPrompts, offered
from tests.cli.stage import Stage, make

QUESTION = "---\ntype: question\n---\nWhich format?\n\n- CSV\n- PDF\n"


@dataclass
class Desk:
    """A workspace with prompts; `openclaw gateway call` answers with the files in a directory, one for each method."""

    stage: Stage
    place: Path
    selector: selectors.BaseSelector
    prompts: QuestionPrompts | None = None
    calls: ProcessTable = field(init=False)

    def __post_init__(self) -> None:
        self.calls = ProcessTable(self.stage.ws.turns, self.selector, dict(os.environ), 1 << 20, 0.2, Caps(1, 1))

    def answers(self, method: str, **payload: Any) -> None:
        """From now on; without a payload the request fails."""
        (self.place / method).write_text(json.dumps(payload) if payload else "")

    @property
    def program(self) -> str:
        path = self.place / "openclaw"
        path.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$3" "$4" >> {self.place}/said\n'
            f'[ -s {self.place}/"$3" ] && cat {self.place}/"$3" && exit 0\n'
            'echo \'{"ok":false,"error":{"message":"gateway closed"}}\'\nexit 1\n'
        )
        path.chmod(0o755)
        return str(path)

    @contextmanager
    def opened(self) -> Iterator[Engine]:
        with open.engine(self.stage.ws, config.load(self.stage.ws.config)) as engine:
            engine.clock = self.stage.clock
            yield engine

    def round(self) -> None:
        """What a daemon does in a round, until the requests that it has begun have ended."""
        with self.opened() as engine:
            if self.prompts is None:
                self.prompts = QuestionPrompts(engine, self.calls, GatewayCalls((self.program,)), enabled=True)
            self.prompts.engine = engine
            self.prompts.perform()
            while self.calls.running:
                with engine.batch():
                    for call, exit_ in self.calls.ended():
                        self.prompts.ended(call, exit_)
            self.calls.discard_recorded()

    def said(self) -> list[tuple[str, dict[str, Any]]]:
        """The requests since the last look."""
        path = self.place / "said"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        pairs = zip(lines[::2], lines[1::2], strict=True)
        found = [(method, json.loads(params.removeprefix("--params="))) for method, params in pairs]
        return [one for one in found if one[0] != "question.list"]

    def ask(self, name: str, *more: str, text: str = QUESTION) -> None:
        """A task whose agent asks."""
        sent = self.stage.run("send", "--task-id", name, *more, "Export it")
        assert sent.exit_code == 0, sent.output
        assert self.stage.receive() == "accepted"
        self.stage.start()
        self.stage.end_turn(name, text)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    place = tmp_path / "openclaw"
    place.mkdir()
    with selectors.DefaultSelector() as selector:
        made = Desk(make(tmp_path / "alpha", "notify:\n  reply_to: ['session:agent:beta:*']\n"), place, selector)
        made.answers("question.list", questions=[])
        made.answers("question.request", id="x", expiresAtMs=1)
        made.answers("question.waitAnswer", status="pending")
        made.answers("question.resolve", status="cancelled")
        yield made


def test_an_open_question_is_asked_with_its_choices_and_answered_there(desk: Desk) -> None:
    desk.ask("export")
    desk.round()
    ((method, params),) = desk.said()
    assert (method, params["sessionKey"], params["agentId"]) == ("question.request", "agent:alpha:main", "alpha")
    (question,) = params["questions"]
    assert question["question"] == "export: Which format?"
    assert [option["label"] for option in question["options"]] == ["CSV", "PDF"]
    assert question["isOther"] is True
    assert len(question["header"]) <= 12
    desk.round()
    assert [(method, said["id"]) for method, said in desk.said()] == [("question.waitAnswer", params["id"])]
    desk.answers("question.waitAnswer", status="answered", answers={"answers": {"answer": ["CSV, please"]}})
    desk.round()
    assert f"continues after the question  [{BY}]" in desk.stage.run("log", "export").output
    assert any("CSV, please" in str(effect) for effect in desk.stage.orders(RunTurn))
    desk.said()
    desk.round()
    assert desk.said() == [], "it is neither asked again nor withdrawn"
    (given,) = desk.stage.json("show", "export")["given"]
    assert (given["by"], given["order"], given["note"]) == (BY, "answer", "CSV, please")


def test_it_is_asked_in_the_session_that_is_to_have_the_result(desk: Desk) -> None:
    desk.ask("export", "--reply-to", "session:agent:beta:main")
    desk.round()
    ((_, params),) = desk.said()
    assert (params["sessionKey"], params["agentId"]) == ("agent:beta:main", "beta")


def test_a_question_that_is_answered_elsewhere_is_withdrawn(desk: Desk) -> None:
    desk.ask("export")
    desk.round()
    ((_, params),) = desk.said()
    assert desk.stage.run("answer", "export", "PDF").exit_code == 0
    desk.round()
    assert [(method, said) for method, said in desk.said()] == [
        ("question.resolve", {"id": params["id"], "cancel": True})
    ]
    desk.round()
    assert desk.said() == []


def test_a_prompt_that_is_lost_is_asked_again_under_its_id(desk: Desk) -> None:
    desk.ask("export")
    desk.round()
    ((_, params),) = desk.said()
    desk.answers("question.waitAnswer")  # the gateway goes away
    desk.round()
    desk.said()
    desk.round()
    assert desk.said() == [], "not before some seconds"
    desk.stage.clock.advance(AGAIN)
    desk.round()
    assert desk.said() == [("question.request", params)]
    (told,) = desk.stage.json("show", "export")["told"]
    assert (told["to"], told["what"], told["sent"]) == ("prompt:agent:alpha:main", "prompt", True), "told once"
    assert told["words"].startswith("export: Which format?")


def test_what_a_person_skips_is_not_asked_again(desk: Desk) -> None:
    desk.ask("export")
    desk.round()
    desk.answers("question.waitAnswer", status="cancelled")
    desk.round()
    desk.said()
    desk.stage.clock.advance(60)
    desk.round()
    assert desk.said() == []
    assert [item["kind"] for item in desk.stage.json("inbox")] == ["question"]


def test_prompts_that_an_earlier_daemon_has_left_are_withdrawn(desk: Desk) -> None:
    desk.ask("export")
    desk.round()
    ((_, params),) = desk.said()
    assert desk.stage.run("answer", "export", "PDF").exit_code == 0
    desk.prompts = None  # it died
    desk.answers("question.list", questions=[{"id": params["id"]}, {"id": "somebody else's"}])
    desk.round()
    desk.round()
    assert desk.said() == [("question.resolve", {"id": params["id"], "cancel": True})]


@pytest.mark.parametrize(
    ("text", "question", "choices"),
    [
        ("Which?\n- CSV\n- **PDF**", "Which?", ("CSV", "PDF")),
        ("Which?\n\n1. CSV\n2) PDF\n", "Which?", ("CSV", "PDF")),
        ("Which?\na) CSV\nb) PDF", "Which?", ("CSV", "PDF")),
        ("Where?", "Where?", ()),
        ("One?\n- CSV", "One?\n- CSV", ()),
        ("- CSV\n- PDF", "- CSV\n- PDF", ()),
        ("Same?\n- CSV\n- CSV", "Same?\n- CSV\n- CSV", ()),
        ("Many?\n" + "- x1\n- x2\n- x3\n- x4\n- x5", "Many?\n- x1\n- x2\n- x3\n- x4\n- x5", ()),
        (f"Long?\n- {'x' * 100}\n- y", f"Long?\n- {'x' * 100}\n- y", ()),
    ],
)
def test_the_choices_are_the_list_at_the_end(text: str, question: str, choices: tuple[str, ...]) -> None:
    assert offered(text) == (question, choices)


@pytest.mark.slow
def test_a_list_that_fails_is_asked_for_ever_more_rarely_and_named_until_it_works(desk: Desk) -> None:
    desk.answers("question.list")
    made = 0
    for _ in range(60):  # an hour
        desk.round()
        path = desk.place / "said"
        made += path.read_text().splitlines().count("question.list") if path.exists() else 0
        path.unlink(missing_ok=True)
        desk.stage.clock.advance(60.0)
    assert 6 <= made <= 12
    assert desk.prompts is not None
    assert desk.prompts.trouble == "OpenClaw does not list its prompts, and is asked again: gateway closed"
    desk.answers("question.list", questions=[])
    desk.stage.clock.advance(MOST_AGAIN)
    desk.round()
    assert desk.prompts.trouble == ""


def test_a_question_that_is_not_taken_is_named_until_it_is(desk: Desk) -> None:
    desk.answers("question.request")
    desk.ask("export")
    desk.round()
    assert desk.prompts is not None
    assert desk.prompts.trouble.startswith("OpenClaw does not ask a question of ")
    desk.answers("question.request", id="x", expiresAtMs=1)
    desk.stage.clock.advance(AGAIN)
    desk.round()
    assert desk.prompts.trouble == ""


def test_a_question_that_is_not_taken_and_is_answered_elsewhere_is_named_no_longer(desk: Desk) -> None:
    desk.answers("question.request")
    desk.ask("export")
    desk.round()
    assert desk.prompts is not None
    assert desk.prompts.trouble
    answered = desk.stage.run("answer", "export", "PDF")
    assert answered.exit_code == 0, answered.output
    desk.round()
    assert desk.prompts.trouble == ""
