"""Small faults of the kind that gets made, and what must notice each: the simulation, or a law by its name.

A test-suite that stays green with one of these planted proves nothing. `python -m tests.properties.mutants` shows
what killed which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mailboxd.core.events import Role
from mailboxd.core.model import Overrides
from mailboxd.core.outcomes import Failed
from mailboxd.core.vocabulary import Phase, Quorum
from mailboxd.errors import WorldError
from tests.cli.stage import make
from tests.core import (
    test_approvals,
    test_attempts,
    test_breaker,
    test_budget,
    test_claims,
    test_conversation,
    test_corrections,
    test_escalation,
    test_flow,
    test_gates,
    test_given_verdicts,
    test_handovers,
    test_pace,
    test_plans,
    test_sent_again,
    test_spec_drafting,
)
from tests.mcp import test_handlers
from tests.mcp.stand import Stand
from tests.properties.planting import Fault, planted
from tests.simulation import test_power, test_small_scopes, test_two_writers, townlife
from tests.simulation.history import Broken, run

MOST_SEEDS, MOST_TOWNS = 200, 60
Law = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A named fault. Without a `law` it is for the simulation to find: of one workspace, or of a town of them."""

    name: str
    at: str
    right: str
    wrong: str
    law: Law | None = None
    in_town: bool = False
    first: int = 0
    """The history that is asked first: the one that noticed the fault the last time."""
    is_text: bool = False

    @property
    def fault(self) -> Fault:
        return Fault(self.at, self.right, self.wrong, self.is_text)

    def killer(self) -> str:
        """What noticed the fault; empty when nothing did."""
        with planted(self.fault):
            if self.law is not None:
                return _notices(self.law)
            return _broken_town(self.first) if self.in_town else _broken_history(self.first)


def _broken_town(first: int) -> str:
    for seed in (first, *range(MOST_TOWNS)):
        try:
            townlife.run(seed)
        except townlife.Broken as broken:
            return f"town {seed}: {broken.__cause__}"
    return ""


def _notices(law: Law) -> str:
    try:
        law()
    except (Exception, pytest.fail.Exception) as noticed:
        return f"{law.__name__}: {str(noticed).splitlines()[0] if str(noticed) else type(noticed).__name__}"
    return ""


def _broken_history(first: int) -> str:
    for seed in (first, *range(MOST_SEEDS)):
        try:
            run(seed)
        except Broken as broken:
            if not isinstance(broken.__cause__, AssertionError | WorldError):
                raise  # the simulation itself fell over: that is no proof of anything
            return f"seed {seed}: {broken.__cause__}"
    return ""


def _an_acknowledged_peer_keeps_the_work() -> None:
    once_acknowledged(Failed("cut"))


def _a_stall_proves_nothing() -> None:
    what_never_reached_the_agent(Failed("connection refused", started=False))


def _nobody_else_decides() -> None:
    test_approvals.test_who_may_not_decide(Role.ORCHESTRATOR)


def _an_edit_voids() -> None:
    test_approvals.test_an_edit_voids_what_was_asked_and_asks_again(approved=True)


def _a_child_only_tightens() -> None:
    said, parents = Overrides(deadline="2026-07-01T00:00:00.000Z"), "2026-06-01T00:00:00.000Z"
    test_budget.test_a_child_may_only_tighten_the_deadline_and_lower_the_priority(said, parents, 5)


def corrections_in_small_scopes() -> None:
    test_small_scopes.law_of_corrections()


def two_writers() -> None:
    test_two_writers.law()


def _other_headers_are_refused() -> None:
    desk = test_sent_again.started()
    test_sent_again.test_other_headers_or_another_plan_are_refused_while_the_work_lives(
        desk, test_sent_again.sent(gates="quality_gate")
    )


def _with_tools(law: str) -> None:
    """A law that stands at a workspace with typed tools."""
    with TemporaryDirectory() as above:
        getattr(test_handlers, law)(Stand(make(Path(above) / "alpha")))


def one_slot() -> None:
    test_claims.test_who_waits_for_a_claim_takes_no_slot()


def one_turn_in_every_order() -> None:
    test_small_scopes.law()


once_acknowledged = (
    test_attempts.test_once_a_peer_has_acknowledged_by_message_the_end_of_the_call_does_not_give_the_work_out_again
)
asked_before_acknowledged = (
    test_conversation.test_a_peer_whose_question_comes_before_its_acknowledgement_gets_the_answer_as_a_message
)
what_never_reached_the_agent = (
    test_attempts.test_what_never_reached_the_agent_proves_nothing_about_the_unknown_attempt_before_it
)

MUTANTS = (
    # ------------------------------------------------------------ dependencies and trees
    Mutant("dependencies are not kept", "_task_created", "event.data['needs']", "[]"),
    Mutant(
        "a dependency that merely ended will do",
        "_passed",
        "(target == Phase.COMPLETED) - (source == Phase.COMPLETED)",
        "(target in TERMINAL) - (source in TERMINAL)",
    ),
    Mutant("a cancel does not cascade", "Engine._woken", "target in CLOSES_CHILDREN", "not target"),
    Mutant(
        "a broadcast waits for all of its copies",
        "Engine._may_go_on",
        "parent.broadcast",
        "False",
        first=28,
    ),
    Mutant("fail-fast is dropped", "_child_failed", "if children.failed: ...", "if children.failed > 99: ..."),
    Mutant(
        "what needs a cancelled child waits for it",
        "_need_cancelled",
        "f'its dependency {view.cancelled_need} was cancelled' if view.cancelled_need else None",
        "f'its dependency {view.cancelled_need} was cancelled' if not view else None",
        first=45,
    ),
    Mutant(
        "a parent does not wait for its children in the graph",
        "_add",
        "graph[path[:-1]].add(path)",
        "graph[path[:-1]].discard(path)",
        test_plans.test_a_plan_is_admitted_exactly_if_it_can_be_run_to_its_end,
    ),
    Mutant(
        "one vote is a majority",
        "majority",
        "votes[0][1] * 2",
        "votes[0][1] * 9",
        test_plans.test_join_majority_needs_more_than_half_with_the_same_answer,
    ),
    Mutant(
        "half of the votes is a majority",
        "majority",
        "votes[0][1] * 2 > copies",
        "votes[0][1] * 3 >= copies",
        test_plans.test_join_majority_fails_when_the_copies_disagree,
    ),
    Mutant(
        "the retry of a child leaves its ended parent ended",
        "retry_trigger",
        "view.parent_phase in CLOSES_CHILDREN",
        "not view",
        test_plans.test_a_child_of_a_cancelled_parent_is_not_retried_alone,
    ),
    # ------------------------------------------------------------ work that is sent again
    Mutant(
        "another text for running work is ignored",
        "_taken_over",
        "new.origin.content != known.content and (known.content or builder.task.parent is not None)",
        "not known",
    ),
    Mutant(
        "what is decided about the result of a first text counts for the second",
        "change",
        "applies(task, Trigger.REDISPATCHED)",
        "not task",
        test_sent_again.test_a_request_for_approval_is_withdrawn_when_the_text_changes_and_made_again_for_the_new_result,
    ),
    Mutant(
        "the review of a first text counts for the second",
        "written",
        "Gate.SPEC_REVIEW in task.policy.gates",
        "not task",
        test_sent_again.test_a_specification_that_was_reviewed_and_is_written_anew_is_reviewed_anew,
    ),
    Mutant(
        "ended work takes another text without a newer attempt",
        "_redispatched",
        "not newer",
        "not task",
        first=18,
    ),
    Mutant(
        "other headers for running work are ignored",
        "_taken_over",
        "known.terms not in ('', new.origin.terms)",
        "not known",
        _other_headers_are_refused,
    ),
    Mutant(
        "a typed order is carried out whatever the task has become",
        "transition",
        "task.phase != given.from_phase",
        "task.phase == given.task",
        lambda: _with_tools("test_an_order_about_a_phase_that_the_task_has_left_is_refused"),
    ),
    Mutant(
        "a review by file that names no attempt counts for the present one",
        "Intake._review",
        "message.attempt if message.attempt_id else message.attempt or 1",
        "message.attempt",
        lambda: _with_tools("test_a_review_by_file_of_an_earlier_attempt_does_not_count_for_the_present_one"),
    ),
    # ------------------------------------------------------------ questions
    Mutant(
        "the questions of each attempt have a limit of their own",
        "asked",
        "task.mending.questions + 1",
        "attempt.question_turns + 1",
        test_conversation.test_the_questions_of_all_attempts_count_together,
    ),
    Mutant(
        "an agent that keeps asking keeps its turns",
        "asked",
        "limit + 1",
        "limit + 99",
        test_conversation.test_the_questions_of_all_attempts_count_together,
    ),
    # ------------------------------------------------------------ attempts
    Mutant(
        "the attempt fence is ignored",
        "turn_ended",
        "attempt is None or attempt.id != ended.attempt_id or attempt.status is not AttemptStatus.RUNNING",
        "attempt is None or attempt.status is not AttemptStatus.RUNNING",
        test_attempts.test_a_turn_of_an_older_attempt_is_recorded_and_changes_nothing,
    ),
    Mutant(
        "a reply to an older attempt is not known as such",
        "replied",
        "attempt is not None and reply.older_attempt and (reply.attempt_id != attempt.id)",
        "attempt is None and reply.older_attempt",
        test_attempts.test_a_reply_to_an_older_attempt_is_recorded_and_changes_nothing,
    ),
    Mutant(
        "what came back is applied to an attempt that waits for something else",
        "_awaits",
        "attempt.waiting_for in (Waiting.TURN, Waiting.LOOKUP)",
        "attempt.waiting_for not in (Waiting.TURN,) or ended is not None",
        test_attempts.test_a_turn_that_ends_while_its_attempt_waits_for_children_is_recorded_and_changes_nothing,
    ),
    Mutant(
        "the work of a peer that has acknowledged is given out again",
        "_awaits",
        "isinstance(ended.outcome, Succeeded) and (not isinstance(ended.answer, Acknowledged | Unclear))",
        "ended is not None",
        _an_acknowledged_peer_keeps_the_work,
    ),
    Mutant(
        "an unknown outcome is repeated blindly",
        "may_repeat",
        "task.policy.idempotent or harmless",
        "not harmless or harmless",
        test_attempts.test_work_that_is_not_idempotent_is_never_repeated_after_an_unknown_outcome,
    ),
    Mutant(
        "an unknown outcome is taken for a failure",
        "outcome_unknown",
        "failed_attempt(builder, f'outcome unknown: {error}', status=AttemptStatus.UNKNOWN)",
        "failed_attempt(builder, f'outcome unknown: {error}', status=AttemptStatus.FAILED)",
        first=169,
    ),
    Mutant(
        "an unknown outcome is not looked up",
        "_turn_unknown",
        "not unknown.looked_up",
        "unknown is None",
        test_attempts.test_an_unknown_outcome_is_looked_up_before_anything_is_repeated,
    ),
    Mutant(
        "a new session after an unknown outcome",
        "next_session_key",
        "previous.status is AttemptStatus.UNKNOWN",
        "previous.status is AttemptStatus.RUNNING",
        first=45,
    ),
    Mutant(
        "a stall proves the end of the unknown attempt before it",
        "next_session_key",
        "previous.status is AttemptStatus.UNKNOWN or unproven",
        "previous.status is AttemptStatus.UNKNOWN or (unproven and (not previous))",
        _a_stall_proves_nothing,
    ),
    Mutant(
        "the budget is off by one",
        "is_exhausted",
        "failures >= policy.max_attempts",
        "failures > policy.max_attempts",
        first=34,
    ),
    Mutant(
        "rework is counted as a failure",
        "_apply",
        "builder.move(trigger, reason, rework=task.rework + 1, findings=findings,"
        " mending=spec_drafting.after(task, trigger))",
        "builder.move(trigger, reason, failures=task.failures + 1, rework=task.rework + 1, findings=findings,"
        " mending=spec_drafting.after(task, trigger))",
    ),
    Mutant(
        "no pause after a failure",
        "backoff",
        "1.0 + share * (2.0 * jitter - 1.0)",
        "0.0",
    ),
    Mutant(
        "the pause grows without bound",
        "backoff",
        "min(policy.backoff_base * 2.0 ** exponent, policy.backoff_max)",
        "max(policy.backoff_base * 2.0 ** exponent, policy.backoff_base)",
        test_pace.test_jitter_moves_the_pause_by_its_share_and_no_more,
    ),
    Mutant(
        "a start needs no slot",
        "pick",
        "allowed.get(agent, slots_per_agent) - busy.get(agent, 0)",
        "allowed.get(agent, slots_per_agent) + 0 * len(busy)",
    ),
    Mutant(
        "an open circuit is held for ever",
        "open_circuit",
        "builder.move(trigger, reason, due=hold, error=builder.task.error or reason, **changes)",
        "builder.move(trigger, reason, due=None, error=builder.task.error or reason, **changes)",
    ),
    # ------------------------------------------------------------ who may say what
    Mutant(
        "a stranger's reply is believed",
        "replied",
        "may_answer(attempt.executor, reply.sender)",
        "may_answer(reply.sender, reply.sender)",
        law=test_attempts.test_a_reply_is_taken_only_from_the_agent_the_attempt_was_given_to,
    ),
    Mutant(
        "a wrong token is believed",
        "replied",
        "reply.reply_token != attempt.reply_token and (reply.reply_token is not None or must_echo)",
        "reply.reply_token != attempt.reply_token and must_echo and (reply.reply_token is None)",
        first=46,
    ),
    Mutant(
        "an attempt that never was is believed",
        "replied",
        "reply.attempt_id is not None and reply.attempt_id != attempt.id",
        "reply is None",
        first=76,
    ),
    Mutant("a gate is skipped", "gate_verdict", "gate not in view.task.policy.gates", "view is not None"),
    Mutant(
        "a verdict that came with a result counts for another one",
        "_about",
        "(one for one in verdicts if one.of == digest)",
        "(one for one in verdicts)",
        lambda: test_given_verdicts.test_no_other_verdict_counts(test_given_verdicts.OF_ANOTHER),
    ),
    Mutant(
        "whoever names the executor as the sender tells of reviews",
        "replied",
        "isinstance(answer, Results) and reply.reply_token != attempt.reply_token",
        "isinstance(answer, Results) and (not attempt.reply_token)",
        lambda: test_given_verdicts.test_a_reply_without_the_token_of_its_dispatch_tells_no_verdicts(),
    ),
    Mutant(
        "an agent that took the work of a pool approves it",
        "count_given",
        "one.gate is not gate or asked is None or spoken or same_agent(asked, one.given_at)",
        "one.gate is not gate or asked is None or spoken",
        lambda: test_given_verdicts.test_the_agent_of_a_pool_that_did_the_work_does_not_approve_it(),
    ),
    Mutant(
        "one approval of several is enough",
        "_needed",
        "{Quorum.ALL: reviewers, Quorum.MAJORITY: reviewers // 2 + 1, Quorum.ANY: 1}",
        "{Quorum.ALL: 1, Quorum.MAJORITY: reviewers // 2 + 1, Quorum.ANY: 1}",
    ),
    Mutant("half of the reviewers are a majority", "_needed", "reviewers // 2 + 1", "(reviewers + 1) // 2"),
    Mutant(
        "the softest word counts",
        "_reviewed",
        "max(verdicts.values(), key=list(Verdict).index)",
        "min(verdicts.values(), key=list(Verdict).index)",
        lambda: test_gates.test_the_quorum_says_how_many_must_approve(Quorum.ALL, "aac", Phase.EXECUTING),
        first=32,
    ),
    Mutant(
        "a gate does not wait for the checks", "gate_verdict", "len(view.check_runs) < len(view.checks)", "not view"
    ),
    Mutant(
        "a failed check passes",
        "_checked",
        "((CheckVerdict.IMPOSSIBLE, Verdict.BLOCKED), (CheckVerdict.FAILED, Verdict.CHANGES_REQUESTED))",
        "((CheckVerdict.IMPOSSIBLE, Verdict.BLOCKED),)",
        test_spec_drafting.test_a_failed_check_is_rework_and_is_run_again_on_the_next_attempt,
    ),
    Mutant("a weak spec is complete", "_spec_complete", "None if weak else 'the spec is complete'", "'it is complete'"),
    Mutant(
        "a review of an earlier text of the spec counts",
        "after",
        "mending.rounds + 1",
        "mending.rounds",
        test_spec_drafting.test_a_spec_may_be_written_until_the_work_begins,
    ),
    Mutant(
        "two drafts of one spec",
        "order_completion",
        "task.mending.waiting_for is not Waiting.NOTHING",
        "False",
    ),
    Mutant(
        "verdicts over an earlier attempt count",
        "review_round",
        "task.mending.rounds if task.phase is Phase.SPEC_REVIEW else task.attempt",
        "task.mending.rounds",
        test_gates.test_an_approval_of_an_earlier_attempt_does_not_pass_the_next_one,
    ),
    Mutant(
        "a review by message counts for whatever attempt is under review",
        "_review",
        "review.round not in (None, (round_ := review_round(task)))",
        "(round_ := review_round(task)) < 0",
        test_gates.test_a_verdict_given_by_message_is_about_the_attempt_that_it_names,
    ),
    Mutant(
        "planned actions need no approval",
        "_quality_approved.condition",
        "bool(view.task.planned_actions) is with_actions",
        "with_actions is (not view)",
    ),
    # ------------------------------------------------------------ unclear answers
    Mutant("an answer is asked for again without end", "ask_again", "number > MOST or not ended.called", "number < 0"),
    Mutant(
        "the end of a turn that was asked about counts twice",
        "DecisionBuilder.is_ordered",
        "not turn_id or turn_id in self.view.turns",
        "True",
        corrections_in_small_scopes,
    ),
    Mutant(
        "a lost correction is looked up as a first answer",
        "_turn_unknown",
        "replace(lookup, harness=attempt.worker_ref, correction=ended.correction, prompt=ended.prompt)",
        "replace(lookup, harness=attempt.worker_ref, prompt=ended.prompt)",
        test_corrections.test_a_lost_correcting_turn_is_looked_up_as_what_it_was,
    ),
    Mutant(
        "the next attempt does not learn what was refused",
        "turn_ended",
        "ended.correction is not None and (not isinstance(ended.answer, Unclear))",
        "ended.correction is None and (not ended.called)",
        test_corrections.test_so_does_the_attempt_after_one_that_was_answered_with_a_failure,
    ),
    Mutant(
        "what was composed here is asked about",
        "ask_again",
        "number > MOST or not ended.called",
        "number > MOST",
        test_corrections.test_a_synthesis_is_asked_for_again_but_what_was_composed_here_is_not,
    ),
    # ------------------------------------------------------------ planned actions
    Mutant(
        "an action begins without approval",
        "started",
        "row.status is not ApprovalStatus.APPROVED or row.purpose is Purpose.PERMISSION",
        "row.purpose is Purpose.PERMISSION",
        test_approvals.test_taking_back_is_asked_for_approved_and_performed_like_any_other_and_moves_nothing,
    ),
    Mutant(
        "a key may be used again",
        "started",
        "if others: ...",
        "if others[1:]: ...",
        test_approvals.test_a_declared_key_that_failed_is_never_begun_again,
    ),
    Mutant(
        "an action is begun twice",
        "started",
        "row.state is not Performed.NOT",
        "row.state is Performed.DONE",
        test_approvals.test_nothing_begins_without_approval_or_with_another_content,
    ),
    Mutant(
        "what was approved may be exchanged",
        "started",
        "digest != row.digest",
        "not digest",
        test_approvals.test_nothing_begins_without_approval_or_with_another_content,
    ),
    Mutant(
        "an agent may approve",
        "_resolved",
        "builder.role not in _DECIDERS",
        "builder.role not in Role",
        _nobody_else_decides,
    ),
    Mutant(
        "an unknown end is taken for done",
        "all_performed",
        "row.state is not Performed.DONE",
        "row.state is Performed.NOT",
        first=66,
    ),
    Mutant(
        "an edit leaves what was asked",
        "_void_what_was_edited",
        "builder.task.spec != before.spec",
        "builder.task.spec is None",
        _an_edit_voids,
    ),
    Mutant(
        "a request never expires",
        "_expired",
        "row.expires_at <= builder.ctx.now",
        "row.expires_at > builder.ctx.now",
        test_approvals.test_a_request_expires_and_then_the_task_fails,
    ),
    Mutant(
        "it goes on when one of several is approved",
        "all_approved",
        "any((row.status is not ApprovalStatus.APPROVED for row in rows))",
        "all((row.status is not ApprovalStatus.APPROVED for row in rows))",
        first=15,
    ),
    # ------------------------------------------------------------ breakers, budgets, deadlines
    Mutant(
        "an open breaker lets turns through",
        "turns_at_once",
        "{BreakerState.CLOSED: slots, BreakerState.OPEN: 0, BreakerState.HALF_OPEN: min(slots, 1)}",
        "{BreakerState.CLOSED: slots, BreakerState.OPEN: slots, BreakerState.HALF_OPEN: min(slots, 1)}",
    ),
    Mutant(
        "a half-open breaker lets all turns through",
        "turns_at_once",
        "min(slots, 1)",
        "slots",
        test_breaker.test_how_many_turns_it_lets_through,
        first=25,
    ),
    Mutant(
        "a success does not close a breaker",
        "after_turn",
        "_move(breaker, Signal.SUCCESS, now, 'a turn ended well')",
        "_move(breaker, Signal.PAUSE_OVER, now, 'a turn ended well')",
        test_breaker.test_an_open_one_starts_nothing_and_a_half_open_one_starts_one,
    ),
    Mutant(
        "what is over budget goes on",
        "_hold_over_budget",
        "task.held or over(task.policy, spent)",
        "task.held",
        law=test_budget.test_over_budget_nothing_of_the_tree_starts_and_what_runs_is_let_finish,
    ),
    Mutant(
        "a chain of hand-overs comes back once too often",
        "why_held",
        "times > MOST_TIMES",
        "times > MOST_TIMES + 1",
        law=test_handovers.test_the_fourth_return_is_held_and_the_way_is_shown,
    ),
    Mutant(
        "a limit that is raised lets nothing go on",
        "lifted.higher",
        "max(own, now) if own and now else 0",
        "own",
        law=test_budget.test_a_limit_that_is_raised_in_the_configuration_lets_go_on_what_it_held,
    ),
    Mutant(
        "a tree grows without end",
        "over",
        "spent.tree_tasks > policy.max_tree_tasks",
        "spent.tree_tasks < 0",
        law=test_budget.test_a_plan_that_another_agent_sent_is_no_consent,
    ),
    Mutant(
        "retries go before new work",
        "interleaved",
        "second > first or (second == first and (not last_was_again))",
        "second >= first",
        law=test_pace.test_new_work_does_not_wait_for_all_retries_of_failing_work,
    ),
    Mutant(
        "what a child spends is not its parent's",
        "usage_recorded",
        "WHERE id IN",
        "WHERE id = ?1 AND id IN",
        is_text=True,
    ),
    Mutant(
        "a deadline is judged too early",
        "deadline_passed",
        "deadline <= read_until",
        "deadline > read_until",
        first=16,
    ),
    Mutant(
        "who replied in time is late while his word lies unread",
        "time_passed",
        "now if passed.read_until is None else min(now, passed.read_until)",
        "now",
        test_attempts.test_nobody_is_too_late_whose_word_may_lie_unread,
    ),
    Mutant(
        "a child may loosen its deadline",
        "inherit",
        "min(filter(None, (policy.deadline, own.deadline)), default=None)",
        "max(filter(None, (policy.deadline, own.deadline)), default=None)",
        _a_child_only_tightens,
    ),
    Mutant(
        "an escalated task is not given back",
        "restored",
        "{'executor': task.stronger.instead_of} if task.stronger.instead_of else {}",
        "{'executor': task.stronger.instead_of} if not task.stronger.instead_of else {}",
        test_escalation.test_a_fresh_start_gives_it_back_to_whom_it_was_given,
    ),
    Mutant(
        "new instructions that came during a turn are forgotten",
        "steer_again",
        "not attempt.steered",
        "attempt.steered",
        test_conversation.test_while_a_turn_runs_its_results_are_followed_by_another_turn_and_only_one,
    ),
    Mutant(
        "a silent peer is noticed again and again",
        "_heartbeat",
        "builder.amend('no further heartbeat is checked until the peer sends a message', heartbeat=None)",
        "builder.amend('no further heartbeat is checked until the peer sends a message')",
        test_conversation.test_a_peer_is_silent_after_three_missed_beats_and_that_is_noticed_once,
    ),
    # ------------------------------------------------------------ between daemons
    Mutant(
        "a message that was judged before counts again",
        "Messages.first_arrival",
        "direction = 'in'",
        "direction = 'out'",
        in_town=True,
        is_text=True,
    ),
    Mutant(
        "a turn that ended while nobody looked is begun again",
        "next_step",
        "return Next.REPORT",
        "return Next.START",
        in_town=True,
        first=1,
    ),
    Mutant(
        "a peer that asks before it acknowledges gets its work twice",
        "replied",
        "builder.checkpoint('the reply token was echoed', token_echoed=True, acknowledged=True)",
        "builder.checkpoint('the reply token was echoed', token_echoed=True)",
        asked_before_acknowledged,
    ),
    Mutant(
        "a message that a crash left is written anew",
        "MessageDelivery.write",
        "self._read(path) or (self.hub.sign if self.hub.serves(to) else self.sign)(raw)",
        "(self.hub.sign if self.hub.serves(to) else self.sign)(raw)",
        in_town=True,
        first=90,
    ),
    Mutant(
        "a power cut proves that a call was never made",
        "next_step",
        "Next.START if begun == boot else Next.LOOK_UP",
        "Next.START",
        test_power.law,
    ),
    Mutant(
        "a message that a power cut took is not written again",
        "DispatchedMessages.sync",
        "self.engine.store.messages.unsynced()",
        "self.engine.store.messages.unsynced()[:0]",
        in_town=True,
    ),
    Mutant(
        "a reply is taken from anybody",
        "replied",
        "may_answer(attempt.executor, reply.sender)",
        "reply.sender",
        in_town=True,
        first=43,
    ),
    # ------------------------------------------------------------ the store
    Mutant("the chain is not a chain", "append", "chain(before, row)", "chain(GENESIS, row)"),
    Mutant(
        "what a decision leaves is kept as it was before",
        "TaskCache.follow",
        "self.keep(left.task)",
        "pass",
    ),
    Mutant(
        "a count is kept as it was before its row changed",
        "TaskCache.count",
        "getattr(counts, name) + by",
        "getattr(counts, name)",
    ),
    Mutant(
        "a call that has ended still counts as pending",
        "TaskCache.settled",
        "counts.calls -= {order}",
        "pass",
    ),
    Mutant(
        "what comes into the queue is not noticed",
        "TaskCache.moved",
        "self.queue.changed.add(task_id)",
        "pass",
    ),
    Mutant(
        "a timer that is set is slept over",
        "_may_set_timer",
        "event.kind not in _WITHOUT_TIMERS or not _TIMERS.isdisjoint(data.get('changes', ()))",
        "False",
    ),
    Mutant(
        "what was rolled back stays",
        "_roll_back",
        "db.execute('ROLLBACK')",
        "db.execute('COMMIT')",
        first=38,
    ),
    Mutant(
        "a call that left its mark is made again",
        "next_step",
        "return Next.REPORT",
        "return Next.START",
        law=one_turn_in_every_order,
    ),
    Mutant(
        "a turn begins before it is marked",
        "next_step",
        "Next.WAIT if is_marked else Next.START",
        "Next.START",
        law=one_turn_in_every_order,
    ),
    Mutant(
        "a task ends before all children of its plan are created",
        "join_is_met",
        "not children.total or view.children_due",
        "not children.total",
        law=test_plans.test_a_task_does_not_end_before_all_children_of_its_plan_are_there,
    ),
    Mutant(
        "what another process committed is not read",
        "Store._follow_others",
        "self.cache.forget()",
        "pass",
        law=two_writers,
    ),
    Mutant(
        "lines that another process left out stay out",
        "Store._follow_others",
        "self.journal.expect_more()",
        "pass",
        law=two_writers,
    ),
    Mutant(
        "half a line of the journal stays",
        "_cut_torn_line",
        "end != os.fstat(file).st_size",
        "end > os.fstat(file).st_size",
        law=two_writers,
    ),
    Mutant(
        "a claim keeps nobody from starting",
        "may_start",
        "view.task.phase is Phase.EXECUTION_READY and (not view.unmet) and (not view.claimed_by)",
        "view.task.phase is Phase.EXECUTION_READY and (not view.unmet)",
        law=test_claims.test_overlapping_claims_run_one_after_the_other,
    ),
    Mutant(
        "a task that waits for a claim takes a slot",
        "Schedule._waiting_for_claims",
        "[conflict.task for conflict in conflicts(self._db)]",
        "[]",
        law=one_slot,
    ),
    Mutant(
        "a condition is read the other way round",
        "satisfied",
        "(answer.strip().casefold() in wanted) is not condition.negated",
        "(answer.strip().casefold() in wanted) is condition.negated",
        law=test_flow.test_the_branch_that_is_not_taken_is_skipped_with_all_that_needs_it,
    ),
    Mutant(
        "nobody looks at what an answer decides",
        "Engine._woken",
        "woken += self.store.tasks.choosing_dependents(task_id)",
        "pass",
    ),
    Mutant(
        "what needs any waits for what was cancelled",
        "_passed",
        "db.execute(_ONE_CANCELLED, (gone, task_id))",
        "pass",
        first=33,
    ),
    Mutant(
        "rounds never end",
        "round_follows",
        "rounds < task.flow.rounds * task.attempt and (until is None or not satisfied(until, answer))",
        "until is None or not satisfied(until, answer)",
    ),
    Mutant(
        "what was never approved is completed after the last round",
        "_rounds_used_up",
        "task.body is None or until is None or satisfied(until, task.answer)",
        "True",
        law=test_flow.test_rounds_that_are_used_up_open_the_circuit_and_a_retry_grants_as_many_again,
    ),
    Mutant(
        "a checkpoint does not reach its table",
        "_task_event",
        "data.get('attempt_changes')",
        "{}",
    ),
)


def main() -> int:
    """Plant every fault in turn; says what noticed it. 1 when one stays green."""
    green = 0
    for mutant in MUTANTS:
        killer = mutant.killer()
        green += not killer
        print(f"{'killed' if killer else 'GREEN '}  {mutant.name}: {killer or 'nothing noticed'}"[:160], flush=True)
    return min(green, 1)


if __name__ == "__main__":
    raise SystemExit(main())
