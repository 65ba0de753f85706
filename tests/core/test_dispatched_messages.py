"""A message that gives work out: what its headers say, as the model of its type would write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailboxd.core.effects import RunTurn
from mailboxd.core.model import NO_FLOW, Flow, Origin, Overrides, PlannedChild, Spec
from mailboxd.core.outcomes import Results
from mailboxd.formats.protocol.messages import TaskMessage, parse_message
from tests.core.desk import Desk, child, plan
from tests.protocol.plan_strategies import children, extras, lines_of_text

NOWHERE, MODEL = Path("/nowhere"), "openai/gpt-5"
ORIGINS = st.builds(
    Origin,
    root_task_id=st.none() | st.just("r.1"),
    traceparent=st.none() | st.sampled_from(["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "00-0-0-0"]),
    delegation_path=st.lists(st.sampled_from(["ann:" + "0" * 16, "ben:" + "9e" * 8])).map(tuple),
)


def for_a_peer(planned: PlannedChild) -> PlannedChild:
    """The child with what a peer is told, and without what holds it up here or is a plan of its own."""
    said = planned.overrides
    overrides = Overrides(
        timeout=said.timeout,
        idempotent=said.idempotent,
        priority=said.priority,
        deadline=said.deadline,
        budget_usd=said.budget_usd or None,
        model=None if said.model is None else MODEL,
    )
    flow = Flow(answers=planned.flow.answers) if planned.flow.answers else NO_FLOW
    return replace(
        planned, key="c", agents=("bob",), depends_on=("a",), overrides=overrides, flow=flow, children=(), claims=()
    )


@pytest.mark.slow
@settings(max_examples=40)
@given(children(0).map(for_a_peer), lines_of_text(), lines_of_text(), ORIGINS, extras())
def test_it_is_written_as_the_model_of_its_type_writes_it(
    planned: PlannedChild, context: str, result: str, origin: Origin, extra: tuple[tuple[str, str], ...]
) -> None:
    desk = Desk().configured(models=(MODEL,))
    whole = Spec("Know why", instructions="Find out.", context=context)
    desk.give("t", plan(child("a"), planned), spec=whole, origin=origin, extra=extra)
    desk.ends("t.a", Results(result))
    desk.start()
    (turn,) = desk.orders(RunTurn, "t.c")
    message = parse_message(desk.dispatch(turn, "t.c", NOWHERE), "m.md").message  # which compares them
    assert isinstance(message, TaskMessage)
    assert (message.to, message.task_id, message.subtask_id) == ("bob", "t", "c")
    assert message.timeout == desk.task("t.c").policy.timeout
    assert message.answers == (planned.flow.answers or None)
    assert set(message.own_headers()) == {name for name, _ in planned.extra}
