"""Files as people and their tools drop them, with the meaning that a careful person gives them.

`files.yaml` has a line for each file of `files/`, and short files of its own (`text`). They are taken by the real
intake of alpha, beside whom there are beta, gamma and delta; it is Thursday, 26 November 2026, in Berlin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mailboxd.core.model import Policy
from tests.dialects.desk import Desk

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = yaml.load((HERE / "files.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
DEFAULT = Policy()


def raw_of(case: dict[str, Any]) -> bytes:
    if "text" in case:
        return str(case["text"]).encode(str(case.get("encoding", "utf-8")))
    return (HERE / "files" / str(case["name"])).read_bytes()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_a_file_has_the_meaning_that_a_careful_person_gives_it(case: dict[str, Any], tmp_path: Path) -> None:
    desk = Desk(tmp_path / "alpha")
    for beside in case.get("beside", ()):
        desk.drop(beside["name"], beside["text"].encode())
        desk.take()
    before = len(desk.roots)
    raw = raw_of(case)
    name = case.get("drop_as", case["name"])
    if "task" in case:
        desk.take_task_file(case["task"], raw)
        refused = desk.why_refused(case["task"])
        verdict, doubt = "rejected" if refused else "accepted", ""
    else:
        desk.drop(name, raw)
        desk.take()
        verdict, doubt, refused = desk.judged(name)
    new = desk.roots[before:]
    held = "".join(task.held for task in new)
    said = refused if verdict == "rejected" else f"{doubt}{held}"
    for word in case.get("say", ()):
        assert word.casefold() in said.casefold(), f"{word!r} is not in: {said}"
    match case["reaction"]:
        case "refuse":
            assert (verdict, new) == ("rejected", []), f"{verdict}: {doubt}"
            return
        case "not-taken":
            assert new == []
            return
        case "repeat":
            (one,) = desk.engine.store.repetitions.going_on()
            assert (verdict, doubt, new, one.next_at) == ("accepted", "", [], case["next_at"]), refused
            return
        case "take":
            assert (verdict, doubt, held) == ("accepted", "", ""), refused
        case "wait":
            assert (verdict, bool(held)) == ("accepted", True), refused
        case "doubt":
            assert verdict in ("accepted", "duplicate"), refused
            assert doubt
    if verdict == "duplicate":
        return
    (task,) = new
    assert case.get("title", task.title) == task.title
    assert task.sender == case.get("sender", "operator")
    assert task.policy.deadline == case.get("deadline")
    assert task.not_before == case.get("not_before")
    assert case.get("priority", task.policy.priority) == task.policy.priority
    assert len(task.spec.acceptance_criteria) == case.get("criteria", 1)
    assert [child.executor for child in desk.children(task)] == case.get("executors", [])
    assert [need.title for need in desk.needs(task)] == case.get("after", [])
    if "limits" in case:
        policy = task.policy
        assert [policy.timeout, policy.budget_usd, policy.budget_tokens, policy.max_attempts] == [
            given if given is not None else default
            for given, default in zip(case["limits"], (DEFAULT.timeout, None, None, DEFAULT.max_attempts), strict=True)
        ]
    if "labels" in case:
        assert list(task.policy.labels) == case["labels"]
    for text in case.get("contains", ()):
        assert text in f"{task.spec.instructions}\n{task.spec.context}"
