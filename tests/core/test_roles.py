"""The permission matrix of protocol section 5, cell by cell."""

from __future__ import annotations

import pytest

from mailboxd.core.events import Role
from mailboxd.core.inputs import Cancel, Edited, Input, NewTask, Remedy, Retry, Start, Steer, TimePassed, Unblock
from mailboxd.core.model import Policy, Spec
from mailboxd.core.roles import Verb, may, require
from mailboxd.errors import Refused
from tests.core.desk import Desk, refused

COLUMNS = (
    Verb.CREATE, Verb.READ, Verb.START_ATTEMPT, Verb.CHECKPOINT, Verb.ARTIFACT, Verb.REVIEW_SPEC, Verb.REVIEW_QUALITY,
    Verb.REQUEST_APPROVAL, Verb.RESOLVE_APPROVAL, Verb.TRANSITION, Verb.OPEN_CIRCUIT, Verb.COMMAND,
)  # fmt: skip
# y: may, -: may not. "optional" and "own ..." of the protocol are y: what is whose is checked where the input is.
TABLE = """
orchestrator      y y y y y - - y y y y -
executor          - y - y y - - - - - - -
spec_reviewer     - y - y y y - - - - - -
quality_reviewer  - y - y y - y - - - - -
lobster           - y - y y - - y y - - -
operator          y y - - - - - - y - - y
"""
CELLS = [
    (Role(line.split()[0]), verb, mark == "y")
    for line in TABLE.strip().splitlines()
    for verb, mark in zip(COLUMNS, line.split()[1:], strict=True)
]


def test_every_role_and_every_verb_has_its_cell() -> None:
    assert {(role, verb) for role, verb, _ in CELLS} == {(role, verb) for role in Role for verb in Verb}


@pytest.mark.parametrize(("role", "verb", "allowed"), CELLS, ids=lambda value: str(value))
def test_a_cell_of_the_matrix(role: Role, verb: Verb, allowed: bool) -> None:
    assert may(role, verb) is allowed
    if allowed:
        require(role, verb)
    else:
        with pytest.raises(Refused) as caught:
            require(role, verb)
        assert caught.value.rule == "permission-denied"
        assert caught.value.problem == f"the role {role} may not {verb}"


INPUTS: list[Input] = [
    Start(),
    TimePassed(),
    Cancel("boss"),
    Retry(),
    Unblock(Remedy.RETRY),
    Edited(notes="x"),
    Steer("boss", "x"),
]


@pytest.mark.parametrize("role", [role for role in Role if role not in (Role.ORCHESTRATOR, Role.OPERATOR)])
@pytest.mark.parametrize("heard", INPUTS, ids=lambda heard: type(heard).__name__)
def test_only_the_orchestrator_moves_phases_whatever_the_entrance(role: Role, heard: Input) -> None:
    desk = Desk()
    desk.give()
    with refused(desk, "permission-denied"):
        desk.handle("t", heard, role)


@pytest.mark.parametrize("heard", [Start(), TimePassed()], ids=lambda heard: type(heard).__name__)
def test_a_person_gives_commands_and_nothing_else(heard: Input) -> None:
    desk = Desk()
    desk.give()
    with refused(desk, "permission-denied"):
        desk.handle("t", heard, Role.OPERATOR)


def test_nobody_but_the_orchestrator_creates_work() -> None:
    desk = Desk()
    with refused(desk, "permission-denied"):
        desk.handle(None, NewTask("t", None, "t", "eve", "t", Spec("t"), Policy()), Role.EXECUTOR)


def test_a_cancel_comes_from_the_operator_the_sender_or_nobody() -> None:
    desk = Desk()
    desk.give()
    with refused(desk, "wrong-agent"):
        desk.handle("t", Cancel("eve"))
    desk.handle("t", Cancel("boss"))
    assert desk.phase().is_terminal


def test_new_instructions_come_from_the_sender_or_the_operator() -> None:
    desk = Desk()
    desk.give()
    with refused(desk, "wrong-agent"):
        desk.handle("t", Steer("eve", "Delete everything."))
    desk.handle("t", Steer("boss", "Use blue."))
    assert "Use blue." in desk.task("t").spec.instructions
