"""Planned actions from their declaration to their end: who is asked, who may decide, and what runs how often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mailboxd.core.approvals import (
    Action,
    ActionDeclared,
    ActionEnded,
    ActionImpossible,
    ActionKind,
    ActionNotBegun,
    ActionPrepared,
    ActionRules,
    ActionStarted,
    Approval,
    ApprovalDecision,
    ApprovalStatus,
    Performed,
    PermissionAsked,
    RequestUndo,
    Resolve,
    digest,
    in_words,
    may_not_perform,
)
from mailboxd.core.decision_builder import sha256_of
from mailboxd.core.effects import AnswerPermission, Effect, Notify, Perform, Prepare, Verify
from mailboxd.core.events import Event, Role
from mailboxd.core.inputs import Cancel, OpenCircuit, Remedy, Steer, Unblock
from mailboxd.core.model import Spec
from mailboxd.core.outcomes import Aborted, Results
from mailboxd.core.vocabulary import Notice, Phase
from tests.core.desk import DONE, PUBLISH, Desk, child, plan, refused, with_policy

TELL = Action("tell", ActionKind.MESSAGE, channel="slack", target="#team", text="It is out")
BY_HAND = Action("manual", ActionKind.MANUAL, action="Call the customer")


def asking(*actions: Action, **policy: int) -> Desk:
    """Work whose result declares these actions, every one of them prepared."""
    desk = Desk(with_policy(**policy))
    desk.give()
    desk.ends("t", Results("done", planned_actions=actions))
    prepare(desk)
    return desk


def take(desk: Desk, kind: type[Effect], name: str = "t") -> list[Effect]:
    """What is ordered of this kind, taken out of the outbox; what is prepared is prepared."""
    orders = desk.pending(kind, name)
    for order in orders:
        if isinstance(order.effect, Prepare):
            approval_id, action, undoes = order.effect.approval_id, order.effect.action, order.effect.undoes
            prepared = ActionPrepared(approval_id, action, "look", digest(action), "builtin", undoes=undoes)
            desk.handle(name, prepared)
        desk.finish(order)
    return [order.effect for order in orders]


def prepare(desk: Desk, name: str = "t") -> None:
    take(desk, Prepare, name)


def rows(desk: Desk, name: str = "t") -> tuple[Approval, ...]:
    return desk.approvals(name)


def decide(desk: Desk, word: ApprovalDecision, note: str = "", *, name: str = "t", number: int = -1) -> list[Event]:
    return desk.handle(name, Resolve(rows(desk, name)[number].id, word, note), Role.OPERATOR, "ann")


def approve_all(desk: Desk, name: str = "t") -> None:
    for row in rows(desk, name):
        if row.status is ApprovalStatus.PENDING:
            desk.handle(name, Resolve(row.id, ApprovalDecision.APPROVED), Role.OPERATOR, "ann")


def start(desk: Desk, number: int = -1, name: str = "t") -> Approval:
    row = rows(desk, name)[number]
    desk.handle(name, ActionStarted(row.id, row.digest))
    return rows(desk, name)[number]


def end(desk: Desk, state: Performed = Performed.DONE, number: int = -1, name: str = "t") -> None:
    desk.handle(name, ActionEnded(rows(desk, name)[number].id, state, f"it is {state}", "output"))


def test_the_end_of_an_action_without_output_is_its_own_text() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Results("done", planned_actions=(PUBLISH,)))
    prepare(desk)
    approve_all(desk)
    row = start(desk)
    desk.handle("t", ActionEnded(row.id, Performed.DONE, "a was written: 60 bytes", ""))
    sql = "SELECT body, sha256 FROM artifacts WHERE produced_by = 'mailboxd'"
    ((body, sha256),) = desk.store.db.execute(sql).fetchall()
    assert body.endswith("a was written: 60 bytes")
    assert sha256 == sha256_of(body)


# ---------------------------------------------------------------- asking


def test_an_action_is_prepared_asked_for_approved_and_performed() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Results("done", planned_actions=(PUBLISH,)))
    assert desk.phase() is Phase.AWAITING_APPROVAL
    assert rows(desk) == ()
    prepare(desk)
    (row,) = rows(desk)
    assert (row.status, row.requested_by, row.side_effect_kind) == ("pending", "main", "command")
    assert row.requested_action == "run make publish"
    decide(desk, ApprovalDecision.APPROVED)
    assert desk.phase() is Phase.READY_TO_RESUME
    assert take(desk, Perform)
    assert start(desk).state is Performed.STARTED
    end(desk)
    assert desk.phase() is Phase.COMPLETED
    assert rows(desk)[0].resolved_by == "ann"


def test_an_action_is_asked_for_once_however_often_it_is_prepared() -> None:
    desk = asking(PUBLISH)
    (row,) = rows(desk)
    for approval_id in (row.id, "apr_another"):
        desk.handle("t", ActionPrepared(approval_id, PUBLISH, "look", row.digest, "builtin"))
    assert rows(desk) == (row,)
    assert not desk.orders(Prepare)


def test_actions_run_one_after_the_other_in_the_order_they_stand_in() -> None:
    desk = asking(PUBLISH, TELL)
    decide(desk, ApprovalDecision.APPROVED, number=1)
    assert desk.phase() is Phase.AWAITING_APPROVAL
    decide(desk, ApprovalDecision.APPROVED, number=0)
    assert [effect.approval_id for effect in desk.orders(Perform)] == [rows(desk)[0].id]
    start(desk, 0)
    end(desk, number=0)
    assert desk.phase() is Phase.READY_TO_RESUME
    assert rows(desk)[1].id in [effect.approval_id for effect in desk.orders(Perform)]


def test_after_a_failure_the_rest_is_not_run() -> None:
    desk = asking(PUBLISH, TELL)
    approve_all(desk)
    start(desk, 0)
    end(desk, Performed.FAILED, 0)
    assert desk.phase() is Phase.CIRCUIT_OPEN
    assert rows(desk)[1].void
    with refused(desk, "not-approved"):
        start(desk, 1)


def test_a_manual_action_is_done_when_it_is_approved() -> None:
    desk = asking(BY_HAND)
    decide(desk, ApprovalDecision.APPROVED, "she is happy")
    assert desk.phase() is Phase.COMPLETED
    assert rows(desk)[0].summary == "done by hand, says ann: she is happy"
    assert not desk.orders(Perform)


def test_an_action_of_the_spec_that_the_result_declares_as_well_is_one() -> None:
    desk = Desk()
    desk.give(spec=Spec("t", "Do it.", expected_output="It.", planned_actions=(PUBLISH,)))
    desk.ends("t", Results("done", planned_actions=(PUBLISH, replace(PUBLISH, argv=("make", "all")))))
    assert [action.id for action in desk.task("t").planned_actions] == ["publish", "publish-2"]
    prepare(desk)
    assert [row.requested_by for row in rows(desk)] == ["boss", "main"]


def test_actions_of_work_that_was_given_away_are_performed_here() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob", planned_actions=(PUBLISH,))))
    desk.ends("t.a", DONE)
    assert desk.phase("t.a") is Phase.AWAITING_APPROVAL
    assert desk.phase() is Phase.EXECUTING


def test_the_copies_of_a_broadcast_have_no_actions_and_their_parent_has() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", ("bob", "eve"), planned_actions=(PUBLISH,))))
    assert [desk.task(f"t.a.{name}").spec.planned_actions for name in ("bob", "eve")] == [(), ()]
    assert desk.task("t.a").spec.planned_actions == (PUBLISH,)


def test_other_branches_go_on_while_one_waits_for_a_person() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", planned_actions=(PUBLISH,)), child("b"), child("c", "self", "b")))
    desk.done("t.a", "t.b", "t.c")
    assert desk.phases("t.a", "t.b", "t.c") == ["awaiting_approval", "completed", "completed"]


# ---------------------------------------------------------------- deciding


@pytest.mark.parametrize(
    ("word", "phase"),
    [
        (ApprovalDecision.APPROVED, Phase.READY_TO_RESUME),
        (ApprovalDecision.REJECTED, Phase.FAILED),
        (ApprovalDecision.REQUEST_CHANGES, Phase.EXECUTION_READY),
    ],
)
def test_where_a_decision_leads(word: ApprovalDecision, phase: Phase) -> None:
    desk = asking(PUBLISH)
    decide(desk, word, "not like this")
    assert desk.phase() is phase
    if word is ApprovalDecision.REQUEST_CHANGES:
        assert desk.task("t").findings == "- major: run make publish: not like this"


def test_changes_that_a_person_asks_for_are_no_rework_and_void_what_else_was_asked() -> None:
    desk = asking(PUBLISH, TELL)
    decide(desk, ApprovalDecision.REQUEST_CHANGES, number=0)
    assert desk.task("t").rework == 0
    assert [(row.status, row.void) for row in rows(desk)] == [("request_changes", False), ("expired", True)]
    desk.start()
    desk.ends("t", Results("better", planned_actions=(PUBLISH,)))
    prepare(desk)
    assert [row.status for row in rows(desk)] == ["request_changes", "expired", "pending"]


def test_nobody_decides_twice_and_saying_it_again_changes_nothing() -> None:
    desk = asking(PUBLISH)
    decide(desk, ApprovalDecision.APPROVED)
    assert decide(desk, ApprovalDecision.APPROVED) == []
    with refused(desk, "already-decided"):
        decide(desk, ApprovalDecision.REJECTED)
    with refused(desk, "already-decided"):
        desk.handle("t", Resolve(rows(desk)[0].id, ApprovalDecision.APPROVED), Role.OPERATOR, "bea")


@pytest.mark.parametrize("role", [Role.EXECUTOR, Role.SPEC_REVIEWER, Role.QUALITY_REVIEWER, Role.ORCHESTRATOR])
def test_who_may_not_decide(role: Role) -> None:
    desk = asking(PUBLISH)
    with refused(desk, "permission-denied"):
        desk.handle("t", Resolve(rows(desk)[0].id, ApprovalDecision.APPROVED), role, "rex")


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.LOBSTER])
def test_the_executor_does_not_decide_about_its_own_work_in_any_role(role: Role) -> None:
    desk = asking(PUBLISH)
    with refused(desk, "own-work"):
        desk.handle("t", Resolve(rows(desk)[0].id, ApprovalDecision.APPROVED), role, "MAIN")


def test_a_request_expires_and_then_the_task_fails() -> None:
    desk = asking(PUBLISH)
    desk.wait(86_399)
    assert desk.phase() is Phase.AWAITING_APPROVAL
    assert desk.due() == rows(desk)[0].expires_at
    desk.wait(2)
    assert desk.phase() is Phase.FAILED
    assert "expired by mailboxd: nobody decided" in desk.task("t").error
    with refused(desk, "already-decided"):
        decide(desk, ApprovalDecision.APPROVED)


def test_a_decision_after_the_hour_does_not_count_even_if_nobody_has_noticed_yet() -> None:
    desk = asking(PUBLISH)
    desk.clock.advance(86_401)
    with refused(desk, "expired"):
        decide(desk, ApprovalDecision.APPROVED)


@pytest.mark.parametrize("approved", [False, True])
def test_an_edit_voids_what_was_asked_and_asks_again(approved: bool) -> None:
    desk = asking(PUBLISH, TELL)
    if approved:
        decide(desk, ApprovalDecision.APPROVED, number=0)
    desk.handle("t", Steer("boss", "Only to staging."))
    assert all(row.void for row in rows(desk))
    prepare(desk)
    assert [row.status for row in rows(desk)] == ["expired", "expired", "pending", "pending"]
    assert desk.phase() is Phase.AWAITING_APPROVAL


def test_what_is_about_to_run_is_not_edited() -> None:
    desk = asking(PUBLISH)
    approve_all(desk)
    with refused(desk, "about-to-run"):
        desk.handle("t", Steer("boss", "Only to staging."))


def test_a_cancel_voids_what_has_not_begun() -> None:
    desk = asking(PUBLISH)
    approve_all(desk)
    desk.command("t", Cancel("operator"))
    assert rows(desk)[0].void
    with refused(desk, "not-approved"):
        start(desk)


def test_a_cancel_does_not_hide_the_end_of_what_has_begun() -> None:
    desk = asking(PUBLISH)
    approve_all(desk)
    start(desk)
    desk.command("t", Cancel("operator"))
    end(desk)
    assert (desk.phase(), rows(desk)[0].state) == (Phase.CANCELLED, Performed.DONE)


def test_people_are_told_where_that_is_configured() -> None:
    desk = asking(PUBLISH)
    assert not desk.orders(Notify)
    desk = Desk()
    desk.configured(notices=frozenset({Notice.APPROVAL}))
    desk.give()
    desk.ends("t", Results("done", planned_actions=(PUBLISH,)))
    prepare(desk)
    assert desk.orders(Notify) == [Notify(Notice.APPROVAL, rows(desk)[0].id)]


# ---------------------------------------------------------------- performing


def test_nothing_begins_without_approval_or_with_another_content() -> None:
    desk = asking(PUBLISH)
    with refused(desk, "not-approved"):
        start(desk)
    approve_all(desk)
    with refused(desk, "digest-mismatch"):
        desk.handle("t", ActionStarted(rows(desk)[0].id, "0" * 64))
    start(desk)
    with refused(desk, "begun-already"):
        start(desk)


def test_an_unknown_end_opens_the_circuit_and_a_person_may_accept() -> None:
    desk = asking(PUBLISH)
    approve_all(desk)
    start(desk)
    end(desk, Performed.UNKNOWN)
    assert desk.phase() is Phase.CIRCUIT_OPEN
    desk.command("t", Unblock(Remedy.ACCEPT))
    assert desk.phase() is Phase.COMPLETED


@pytest.mark.parametrize(
    ("said", "phase"),
    [
        (Performed.DONE, Phase.COMPLETED),
        (Performed.FAILED, Phase.CIRCUIT_OPEN),
        (Performed.UNKNOWN, Phase.CIRCUIT_OPEN),
    ],
)
def test_what_verify_says_settles_an_unknown_end(said: Performed, phase: Phase) -> None:
    desk = asking(replace(PUBLISH, verify=("make", "is-published")))
    approve_all(desk)
    start(desk)
    end(desk, Performed.UNKNOWN)
    assert desk.phase() is Phase.READY_TO_RESUME
    assert take(desk, Verify)
    end(desk, said)
    assert desk.phase() is phase


def test_what_could_not_be_begun_is_tried_again_three_times_in_all() -> None:
    desk = asking(PUBLISH)
    approve_all(desk)
    for _ in range(2):
        take(desk, Perform)
        desk.handle("t", ActionNotBegun(rows(desk)[0].id, "no memory"))
        assert desk.phase() is Phase.READY_TO_RESUME
        desk.wait(60)
        assert desk.orders(Perform)
    desk.handle("t", ActionNotBegun(rows(desk)[0].id, "no memory"))
    assert desk.phase() is Phase.CIRCUIT_OPEN


def test_what_the_machine_refused_for_now_costs_no_try_and_may_begin_again() -> None:
    desk = asking(PUBLISH)
    approve_all(desk)
    for _ in range(5):
        start(desk)
        assert rows(desk)[0].state is Performed.STARTED
        desk.handle("t", ActionNotBegun(rows(desk)[0].id, "no descriptors", for_now=True))
        row = rows(desk)[0]
        assert (row.state, row.tries, row.started_at) == (Performed.NOT, 0, "")
        assert desk.phase() is Phase.READY_TO_RESUME
    start(desk)
    end(desk, Performed.DONE)
    desk.handle("t", ActionNotBegun(rows(desk)[0].id, "no descriptors", for_now=True))
    assert rows(desk)[0].state is Performed.DONE, "what has ended is not taken back"


def again(desk: Desk, *actions: Action) -> None:
    """The work is done once more, and declares these actions."""
    desk.command("t", Unblock(Remedy.RETRY))
    desk.start()
    desk.ends("t", Results("done", planned_actions=actions))
    prepare(desk)


def test_what_was_done_is_not_done_or_asked_for_again_by_the_next_attempt() -> None:
    desk = asking(PUBLISH, TELL)
    approve_all(desk)
    start(desk, 0)
    end(desk, number=0)
    start(desk, 1)
    end(desk, Performed.FAILED, 1)
    again(desk, PUBLISH, TELL)
    assert [(row.status, row.state) for row in rows(desk)[2:]] == [("approved", "done"), ("pending", "")]
    assert rows(desk)[3].idempotency_key == rows(desk)[1].idempotency_key + "/2"
    assert rows(desk)[3].risk == f"{rows(desk)[1].short_id} did the same, and is failed: it is failed"
    approve_all(desk)
    assert start(desk, 3).state is Performed.STARTED


def test_a_declared_key_that_failed_is_never_begun_again() -> None:
    keyed = replace(PUBLISH, idempotency_key="release-7")
    desk = asking(keyed)
    approve_all(desk)
    start(desk)
    end(desk, Performed.FAILED)
    again(desk, keyed)
    approve_all(desk)
    assert start(desk).state is Performed.FAILED
    assert not rows(desk)[1].started_at
    assert "declare another key" in desk.task("t").reason


def test_two_tasks_with_one_key_do_it_once() -> None:
    keyed = replace(PUBLISH, idempotency_key="release-7")
    desk = asking(keyed)
    desk.give("u")
    desk.ends("u", Results("done", planned_actions=(keyed,)))
    prepare(desk, "u")
    approve_all(desk)
    approve_all(desk, "u")
    start(desk)
    with refused(desk, "key-busy"):
        start(desk, name="u")
    end(desk)
    start(desk, name="u")
    assert desk.phases("t", "u") == ["completed", "completed"]
    assert [row.started_at != "" for row in (*rows(desk), *rows(desk, "u"))] == [True, False]


def test_one_key_for_two_things_is_refused_and_nothing_runs() -> None:
    desk = asking(replace(PUBLISH, idempotency_key="k"))
    approve_all(desk)
    start(desk)
    end(desk)
    desk.give("u")
    desk.ends("u", Results("done", planned_actions=(replace(TELL, idempotency_key="k"),)))
    prepare(desk, "u")
    approve_all(desk, "u")
    start(desk, name="u")
    assert desk.phase("u") is Phase.CIRCUIT_OPEN
    assert "nothing ran" in desk.task("u").reason


def test_what_is_known_is_not_made_unknown_by_a_later_word() -> None:
    desk = asking(PUBLISH)
    approve_all(desk)
    start(desk)
    end(desk)
    end(desk, Performed.UNKNOWN)
    assert rows(desk)[0].state is Performed.DONE
    assert desk.kinds()[-1] == "reply.late"


# ---------------------------------------------------------------- what cannot be performed


def test_what_the_work_declared_wrongly_is_reworked_and_in_the_end_a_person_is_asked() -> None:
    desk = asking(PUBLISH, max_rework=1)
    desk.handle("t", ActionImpossible(PUBLISH, "there is no such file"))
    desk.start()
    assert desk.phase() is Phase.EXECUTING
    assert "no such file" in desk.task("t").findings
    desk.ends("t", Results("done", planned_actions=(PUBLISH,)))
    desk.handle("t", ActionImpossible(PUBLISH, "there is no such file"))
    assert desk.phase() is Phase.CIRCUIT_OPEN


@pytest.mark.parametrize("is_possible", [True, False])
def test_what_comes_late_of_an_action_of_an_earlier_attempt_keeps_none_from_being_asked_about(
    is_possible: bool,
) -> None:
    """The first action cannot be performed; the second one is still being looked at when the work is done again."""
    desk = Desk()
    desk.give()
    desk.ends("t", Results("done", planned_actions=(TELL, PUBLISH)))
    desk.handle("t", ActionImpossible(TELL, "there is no such channel"))
    desk.start()
    desk.ends("t", Results("done", planned_actions=(replace(PUBLISH, argv=("make", "publish-all")),)))
    late = next(effect for effect in desk.orders(Prepare) if effect.action == PUBLISH)
    prepared = ActionPrepared(late.approval_id, PUBLISH, "look", digest(PUBLISH), "builtin")
    desk.handle("t", prepared if is_possible else ActionImpossible(PUBLISH, "there is no such file"))
    assert desk.phase() is Phase.AWAITING_APPROVAL
    assert desk.orders(Prepare)[-1].action.argv == ("make", "publish-all")


def test_what_the_sender_declared_wrongly_opens_the_circuit_at_once() -> None:
    desk = Desk()
    desk.give(spec=Spec("t", "Do it.", expected_output="It.", planned_actions=(PUBLISH,)))
    desk.done("t")
    desk.handle("t", ActionImpossible(PUBLISH, "there is no such file"))
    assert desk.phase() is Phase.CIRCUIT_OPEN


def test_what_the_configuration_forbids_is_said_before_the_work_begins_or_to_its_executor() -> None:
    secret = replace(PUBLISH, env=("TOKEN",))
    desk = Desk()
    desk.configured(may_perform=lambda action: may_not_perform(ActionRules(frozenset({"SITE"})), action))
    desk.give(spec=Spec("t", "Do it.", expected_output="It.", planned_actions=(secret,)))
    assert desk.phase() is Phase.SPEC_DRAFT
    desk.give("u")
    desk.ends("u", Results("done", planned_actions=(secret,)))
    assert "does not name TOKEN" in desk.told("u")


def test_the_variables_of_a_header_have_to_be_named_and_allowed() -> None:
    rules = ActionRules(frozenset({"KEY"}))
    call = Action("a", ActionKind.HTTP, method="GET", url="https://x.test", headers=(("X-Key", "${KEY}"),))
    assert "env does not name" in str(may_not_perform(rules, call))
    assert may_not_perform(rules, replace(call, env=("KEY",))) is None
    assert "does not name KEY" in str(may_not_perform(ActionRules(), replace(call, env=("KEY",))))


# ---------------------------------------------------------------- undo, permissions, late declarations


UNDOABLE = replace(PUBLISH, undo=("make", "unpublish"))


def performed() -> Desk:
    desk = asking(UNDOABLE)
    approve_all(desk)
    take(desk, Perform)
    start(desk)
    end(desk)
    return desk


def test_taking_back_is_asked_for_approved_and_performed_like_any_other_and_moves_nothing() -> None:
    desk = performed()
    desk.handle("t", RequestUndo(rows(desk)[0].id), Role.OPERATOR, "ann")
    prepare(desk)
    with refused(desk, "asked-already"):
        desk.handle("t", RequestUndo(rows(desk)[0].id), Role.OPERATOR, "ann")
    with refused(desk, "not-approved"):
        start(desk, 1)
    assert (rows(desk)[1].purpose, rows(desk)[1].requested_by) == ("undo", "mailboxd")
    decide(desk, ApprovalDecision.APPROVED, number=1)
    assert take(desk, Perform)
    start(desk, 1)
    end(desk, number=1)
    assert (desk.phase(), rows(desk)[1].state) == (Phase.COMPLETED, Performed.DONE)


def test_what_was_taken_back_is_not_asked_for_a_second_time() -> None:
    desk = performed()
    desk.handle("t", RequestUndo(rows(desk)[0].id), Role.OPERATOR, "ann")
    prepare(desk)
    decide(desk, ApprovalDecision.APPROVED, number=1)
    start(desk, 1)
    end(desk, number=1)
    assert desk.handle("t", RequestUndo(rows(desk)[0].id), Role.OPERATOR, "ann") == []
    assert desk.orders(Prepare) == []


def test_a_taking_back_that_failed_may_be_asked_for_again() -> None:
    desk = performed()
    desk.handle("t", RequestUndo(rows(desk)[0].id), Role.OPERATOR, "ann")
    prepare(desk)
    decide(desk, ApprovalDecision.APPROVED, number=1)
    start(desk, 1)
    end(desk, Performed.FAILED, number=1)
    assert desk.handle("t", RequestUndo(rows(desk)[0].id), Role.OPERATOR, "ann") != []


# ---------------------------------------------------------------- approvers who are removed


def approvers(desk: Desk, *names: str) -> None:
    """The configuration is changed, and everything that reads it from now on sees the change."""
    desk.configured(approvers=names)


def test_an_unused_approval_of_a_removed_approver_is_void_and_the_action_waits_for_another() -> None:
    desk = asking(PUBLISH)
    approvers(desk, "ann", "bob")
    decide(desk, ApprovalDecision.APPROVED)
    assert take(desk, Perform)
    approvers(desk, "bob")
    assert start(desk).state is Performed.NOT
    (old,) = rows(desk)
    assert (old.status, old.void) == (ApprovalStatus.EXPIRED, True)
    assert "ann, who approved it, is no longer among approvals.approvers" in old.note
    assert desk.phase() is Phase.AWAITING_APPROVAL
    assert "run make publish needs another approval: ann" in desk.task("t").reason
    prepare(desk)
    with refused(desk, "not-an-approver"):
        decide(desk, ApprovalDecision.APPROVED)
    desk.handle("t", Resolve(rows(desk)[-1].id, ApprovalDecision.APPROVED), Role.OPERATOR, "bob")
    assert take(desk, Perform)
    assert start(desk).state is Performed.STARTED
    end(desk)
    assert desk.phase() is Phase.COMPLETED


def test_of_two_approvals_only_that_of_the_removed_approver_is_void() -> None:
    desk = asking(PUBLISH, BY_HAND)
    approvers(desk, "ann", "bob")
    desk.handle("t", Resolve(rows(desk)[1].id, ApprovalDecision.APPROVED), Role.OPERATOR, "ann")
    approvers(desk, "bob")
    desk.handle("t", Resolve(rows(desk)[0].id, ApprovalDecision.APPROVED), Role.OPERATOR, "bob")
    start(desk, 0)
    end(desk, number=0)
    assert (rows(desk)[0].state, rows(desk)[1].void) == (Performed.DONE, True)
    assert desk.phase() is Phase.AWAITING_APPROVAL
    prepare(desk)
    assert len(rows(desk)) == 3
    desk.handle("t", Resolve(rows(desk)[2].id, ApprovalDecision.APPROVED), Role.OPERATOR, "bob")
    assert desk.phase() is Phase.COMPLETED


def test_taking_back_needs_another_approval_when_its_approver_was_removed() -> None:
    desk = performed()
    desk.handle("t", RequestUndo(rows(desk)[0].id), Role.OPERATOR, "ann")
    prepare(desk)
    decide(desk, ApprovalDecision.APPROVED, number=1)
    approvers(desk, "bob")
    assert start(desk, 1).state is Performed.NOT
    prepare(desk)
    assert (rows(desk)[2].purpose, rows(desk)[2].status, rows(desk)[2].origin) == ("undo", "pending", rows(desk)[0].id)


@pytest.mark.parametrize("action", [PUBLISH, UNDOABLE])
def test_what_cannot_be_taken_back(action: Action) -> None:
    desk = asking(action)
    with refused(desk, "not-performed" if action.undo else "no-undo"):
        desk.handle("t", RequestUndo(rows(desk)[0].id), Role.OPERATOR, "ann")


def test_a_permission_moves_nothing_and_its_answer_is_ordered() -> None:
    desk = Desk()
    desk.give()
    desk.handle("t", PermissionAsked("apr_1", "trn_1", "write /etc/hosts", "a diff"))
    assert rows(desk)[0].purpose == "permission"
    decide(desk, ApprovalDecision.APPROVED)
    assert desk.phase() is Phase.EXECUTING
    assert desk.orders(AnswerPermission) == [AnswerPermission("apr_1")]
    with refused(desk, "not-approved"):
        start(desk)


def test_a_permission_ends_with_its_attempt() -> None:
    desk = Desk()
    desk.give()
    desk.handle("t", PermissionAsked("apr_1", "trn_1", "write /etc/hosts", "a diff"))
    desk.done("t")
    assert rows(desk)[0].void
    with refused(desk, "no-attempt"):
        desk.handle("t", PermissionAsked("apr_2", "trn_1", "write /etc/hosts", "a diff"))


def test_a_turn_that_was_overtaken_asks_for_nothing_more() -> None:
    desk = Desk()
    desk.give()
    first = desk.attempt().id
    desk.handle("t", OpenCircuit("enough"))
    desk.ends("t", Aborted("stopped"))
    desk.command("t", Unblock(Remedy.RETRY))
    desk.start()
    assert desk.phase() is Phase.EXECUTING
    with refused(desk, "no-attempt"):
        desk.handle("t", PermissionAsked("apr_1", "trn_1", "write /etc/hosts", "a diff", attempt_id=first))
    desk.handle("t", PermissionAsked("apr_2", "trn_2", "write /etc/hosts", "a diff", attempt_id=desk.attempt().id))
    assert [row.id for row in rows(desk)] == ["apr_2"]


def test_an_action_that_is_declared_while_a_person_is_asked_is_asked_for_too() -> None:
    desk = asking(PUBLISH)
    desk.handle("t", ActionDeclared(TELL), Role.LOBSTER, "flow")
    prepare(desk)
    assert [row.status for row in rows(desk)] == ["pending", "pending"]
    with refused(desk, "permission-denied"):
        desk.handle("t", ActionDeclared(TELL), Role.EXECUTOR, "main")


# ---------------------------------------------------------------- what an action is


def test_a_digest_is_over_all_of_it() -> None:
    changed = [
        replace(PUBLISH, argv=("make", "all")),
        replace(PUBLISH, undo=("true",)),
        replace(PUBLISH, verify=("true",)),
        replace(PUBLISH, env=("A",)),
        replace(PUBLISH, cwd="site"),
        replace(PUBLISH, idempotency_key="k"),
    ]
    assert len({digest(action) for action in (PUBLISH, *changed)}) == len(changed) + 1
    assert len({digest(PUBLISH), digest(PUBLISH, "a"), digest(PUBLISH, "", "a")}) == 3


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (PUBLISH, "run make publish"),
        (replace(PUBLISH, argv=("rm", "-rf", "a b")), 'run rm "-rf" "a b"'),
        (TELL, "send to #team on slack: It is out"),
        (Action("f", ActionKind.FILE, path="/srv/x", source="out/x"), "write /srv/x from out/x"),
        (Action("h", ActionKind.HTTP, method="POST", url="https://x.test/"), "POST https://x.test/"),
        (BY_HAND, "Call the customer"),
    ],
)
def test_what_will_happen_in_one_line(action: Action, words: str) -> None:
    assert in_words(action) == words


# ---------------------------------------------------------------- people whom only the gateway knows

ANN_IN_A_CHAT, HER_DEVICE = "chat:telegram:12345", "device:3c1f9a"


@pytest.mark.parametrize("person", [ANN_IN_A_CHAT, HER_DEVICE])
@pytest.mark.parametrize("listed", [(), ("ann",), ("chat:telegram:123456", "device:3c1f9b")])
def test_nobody_decides_by_chat_or_dashboard_whom_the_list_does_not_name(person: str, listed: tuple[str, ...]) -> None:
    desk = asking(BY_HAND)
    approvers(desk, *listed)
    with refused(desk, "not-an-approver"):
        desk.handle("t", Resolve(rows(desk)[0].id, ApprovalDecision.APPROVED), Role.OPERATOR, person)


@pytest.mark.parametrize("person", [ANN_IN_A_CHAT, HER_DEVICE])
def test_what_cannot_be_taken_back_is_not_approved_from_afar(person: str) -> None:
    desk = asking(PUBLISH)
    approvers(desk, "ann", person)
    approve = Resolve(rows(desk)[0].id, ApprovalDecision.APPROVED)
    with refused(desk, "needs-command"):
        desk.handle("t", approve, Role.OPERATOR, person)
    desk.configured(chat_approves_all=True)
    desk.handle("t", approve, Role.OPERATOR, person)
    assert rows(desk)[0].resolved_by == person


@pytest.mark.parametrize("action", [UNDOABLE, BY_HAND])
def test_what_can_be_taken_back_is_approved_by_a_listed_person_wherever_they_are(action: Action) -> None:
    desk = asking(action)
    approvers(desk, ANN_IN_A_CHAT)
    desk.handle("t", Resolve(rows(desk)[0].id, ApprovalDecision.APPROVED), Role.OPERATOR, ANN_IN_A_CHAT)
    assert (rows(desk)[0].status, rows(desk)[0].resolved_by) == ("approved", ANN_IN_A_CHAT)


def test_anything_may_be_rejected_from_afar() -> None:
    desk = asking(PUBLISH)
    approvers(desk, ANN_IN_A_CHAT)
    desk.handle("t", Resolve(rows(desk)[0].id, ApprovalDecision.REJECTED, "no"), Role.OPERATOR, ANN_IN_A_CHAT)
    assert rows(desk)[0].status == "rejected"
