"""Deciding changes nothing that it was given, and a decision stays as it was made: the builder's view is its own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from mailboxd.core.decision_builder import Decision
from mailboxd.core.task_view import TaskView
from mailboxd.engine import engine
from tests.simulation.history import run

FEW = 4


def test_no_decision_changes_what_it_was_given_or_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Decision, object]] = []

    def watched(name: str) -> None:
        real = getattr(engine, name)

        def judge(view: TaskView | None, *args: Any) -> Decision:
            before = deepcopy(_parts(view))
            try:
                decision: Decision = real(view, *args)
            finally:
                assert _parts(view) == before
            assert decision.left is not view
            made.append((decision, deepcopy((decision.events, _parts(decision.left)))))
            return decision

        monkeypatch.setattr(engine, name, judge)

    watched("decide")
    watched("reach_fixpoint")
    for seed in range(FEW):
        run(seed)
    assert len(made) > 50
    for decision, at_first in made:
        assert (decision.events, _parts(decision.left)) == at_first


def _parts(view: TaskView | None) -> list[dict[str, Any]]:
    """What the view, its task and its attempt consist of."""
    return [] if view is None else [dict(vars(one)) for one in (view, view.task, view.attempt) if one is not None]
