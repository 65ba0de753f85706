"""What a task waits for is judged again when that changes: agents, their rules, the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mailboxd.core.inputs import Retry
from mailboxd.core.model import Overrides, Policy, Usage
from mailboxd.core.outcomes import Reviewed, Succeeded
from mailboxd.core.specs import apply
from mailboxd.core.vocabulary import Gate, Phase, Verdict
from mailboxd.errors import Refused
from tests.core.desk import Desk, with_policy

GATE = Gate.SPEC_REVIEW
STRICT = with_policy(gates=frozenset({GATE}), reviewers=("rex",), named=frozenset())


class Circumstances:
    """A desk whose agents come and go, and whose configuration is edited."""

    def __init__(self, policy: Policy = STRICT, *away: str) -> None:
        self.away = set(away)
        self.desk = Desk(policy, may_reach=self.why, is_gone=self.why)

    def why(self, agent: str) -> str | None:
        return f"there is no agent {agent}" if agent in self.away else None

    def configured(self, **policy: object) -> None:
        """The daemon starts again with another configuration."""
        self.desk.configured(policy=replace(self.desk.settings.policy, **policy))  # type: ignore[arg-type]
        self.look_again()

    def look_again(self) -> None:
        self.desk.look_again()

    def asked(self, name: str = "t") -> list[str]:
        return self.desk.reviewers(name)


def test_an_agent_that_appears_is_asked() -> None:
    now = Circumstances(STRICT, "rex")
    now.desk.give()
    assert "rex cannot be asked" in now.desk.task("t").reason
    now.look_again()
    assert now.asked() == []
    now.away.clear()
    now.look_again()
    assert (now.asked(), now.desk.task("t").reason) == (["rex"], "reviewed by rex")
    now.desk.ends("t", Reviewed(Verdict.APPROVED, "fine"), agent="rex")
    assert now.desk.task("t").phase is Phase.EXECUTING


@pytest.mark.parametrize("gate", list(Gate))
def test_a_gate_that_stands_still_takes_the_reviewers_of_the_configuration(gate: Gate) -> None:
    now = Circumstances(replace(STRICT, gates=frozenset({gate})), "rex")
    now.desk.give()
    if gate is not Gate.SPEC_REVIEW:
        now.desk.done("t")
    assert now.desk.task("t").phase.value == gate.value
    now.configured(reviewers=("ann", "bob"))
    assert now.asked() == ["ann", "bob"]


def test_a_gate_that_its_reviewers_can_decide_keeps_them() -> None:
    now = Circumstances()
    now.desk.give()
    now.configured(reviewers=("ann",))
    assert now.asked() == ["rex"]


def test_a_reviewer_that_vanishes_before_its_turn_is_replaced_and_its_turn_is_no_longer_wanted() -> None:
    now = Circumstances()
    now.desk.give()
    now.away.add("rex")
    now.configured(reviewers=("ann",))
    assert now.asked() == ["ann", "rex"]
    now.desk.ends("t", Reviewed(Verdict.APPROVED, "fine"), agent="ann")
    assert now.desk.task("t").phase is Phase.EXECUTING


def test_one_reviewer_for_both_is_enough_once_the_configuration_allows_it() -> None:
    now = Circumstances(replace(STRICT, gates=frozenset({GATE, Gate.QUALITY_GATE})))
    now.desk.give()
    assert "same_reviewer" in now.desk.task("t").reason
    now.configured(same_reviewer=True)
    assert now.asked() == ["rex"]


def test_a_gate_that_is_switched_off_is_passed() -> None:
    now = Circumstances(STRICT, "rex")
    now.desk.give()
    now.configured(gates=frozenset())
    assert now.desk.task("t").phase is Phase.EXECUTING


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        (Overrides(reviewers=("rex",)), {"reviewers": ("ann",)}),
        (Overrides(gates=frozenset({GATE})), {"gates": frozenset()}),
    ],
)
def test_what_the_task_names_itself_is_not_replaced(said: Overrides, changes: dict[str, object]) -> None:
    now = Circumstances(STRICT, "rex")
    now.desk.give(policy=apply(STRICT, said))
    now.configured(**changes)
    assert (now.desk.task("t").phase, now.asked()) == (Phase.SPEC_REVIEW, [])


def test_a_task_of_an_earlier_version_takes_other_reviewers_and_never_loses_its_gate() -> None:
    now = Circumstances(STRICT, "rex")
    now.desk.give(policy=replace(STRICT, named=None))
    now.configured(gates=frozenset())
    assert now.desk.task("t").phase is Phase.SPEC_REVIEW
    now.configured(reviewers=("ann",))
    assert now.asked() == ["ann"]


@pytest.mark.parametrize("budget", ["budget_usd", "budget_tokens"])
def test_a_budget_that_the_configuration_raises_releases_its_task_and_one_of_its_own_does_not(budget: str) -> None:
    policy = with_policy(named=frozenset(), **{budget: 1}, max_attempts=5)
    now = Circumstances(policy)
    now.desk.give("ours")
    now.desk.give("own", policy=apply(policy, Overrides(**{budget: 1})))  # type: ignore[arg-type]
    for name in ("ours", "own"):
        now.desk.ends(name, Succeeded("said", Usage(input_tokens=5, output_tokens=5, cost_usd=3.0)))
    assert [bool(now.desk.task(name).held) for name in ("ours", "own")] == [True, True]
    key = "limits.usd_per_task" if budget == "budget_usd" else "limits.tokens_per_task"
    assert [key in now.desk.task(name).held for name in ("ours", "own")] == [True, False]
    now.configured(**{budget: 2})
    assert [bool(now.desk.task(name).held) for name in ("ours", "own")] == [True, True]
    now.configured(**{budget: 100})
    assert [bool(now.desk.task(name).held) for name in ("ours", "own")] == [False, True]


def test_retry_has_the_reviewers_asked_or_says_why_nobody_can_be() -> None:
    now = Circumstances(STRICT, "rex")
    now.desk.give()
    with pytest.raises(Refused, match="rex cannot be asked: there is no agent rex") as refused:
        now.desk.command("t", Retry())
    assert "mailboxd doctor" in refused.value.hint
    now.away.clear()
    now.desk.command("t", Retry())
    assert now.asked() == ["rex"]


# ---------------------------------------------------------------- a person names others


@pytest.mark.parametrize("gate", list(Gate))
@pytest.mark.parametrize("named", [frozenset(), frozenset({"reviewers", "gates"}), None])
def test_a_person_names_others_for_reviewers_who_cannot_be_asked(gate: Gate, named: frozenset[str] | None) -> None:
    now = Circumstances(replace(STRICT, gates=frozenset({gate}), named=named), "rex")
    now.desk.give()
    if gate is not Gate.SPEC_REVIEW:
        now.desk.done("t")
    now.desk.command("t", Retry(reviewers=("ann", "main")))
    assert now.asked() == ["ann"]
    now.configured(reviewers=("rex",), gates=frozenset())
    now.desk.ends("t", Reviewed(Verdict.APPROVED, "fine"), agent="ann")
    assert now.desk.task("t").phase.value != gate.value
    assert f"{gate}: reviewed by ann, main, as operator says" in notes(now.desk)


@pytest.mark.parametrize("gate", list(Gate))
def test_a_person_has_a_gate_passed_without_a_review_on_record(gate: Gate) -> None:
    now = Circumstances(replace(STRICT, gates=frozenset({gate})), "rex")
    now.desk.give()
    if gate is not Gate.SPEC_REVIEW:
        now.desk.done("t")
    now.desk.command("t", Retry(reviewers=()))
    assert now.desk.phase().value != gate.value
    assert f"{gate}: operator has it pass without a review" in notes(now.desk)


def test_only_the_gate_that_stands_still_is_passed() -> None:
    now = Circumstances(replace(STRICT, gates=frozenset(Gate), same_reviewer=True), "rex")
    now.desk.give()
    now.desk.command("t", Retry(reviewers=()))
    now.desk.start()
    now.desk.done("t")
    assert (now.desk.phase(), now.asked()) == (Phase.SPEC_GATE, [])


def test_who_cannot_be_asked_either_is_refused_with_what_helps() -> None:
    now = Circumstances(STRICT, "rex", "zoe")
    now.desk.give()
    for names in (("zoe",), ("main",)):
        with pytest.raises(Refused) as refusal:
            now.desk.command("t", Retry(reviewers=names))
        assert refusal.value.rule == "no-reviewer"
        assert "`mailboxd retry t --reviewers none`" in refusal.value.hint
    assert now.desk.task("t").policy.reviewers == ("rex",)


def test_reviewers_that_have_been_asked_are_not_exchanged() -> None:
    now = Circumstances()
    now.desk.give()
    with pytest.raises(Refused, match="waits for no reviewers"):
        now.desk.command("t", Retry(reviewers=("ann",)))
    assert now.asked() == ["rex"]


def notes(desk: Desk) -> list[str]:
    return [event.data.get("note", "") for event in desk.events("t")]
