"""Changes of the configuration as events record them, and the policy that they add up to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core import policy
from mailboxd.core.policy import HIDDEN, NOTHING, RecordedPolicy

VALUES = st.one_of(st.integers(), st.booleans(), st.text(max_size=5), st.lists(st.text(max_size=3), max_size=2))
PATHS = st.sampled_from(["a", "a.b", "gates.quorum", "trusted.writer"])
POLICIES = st.builds(
    RecordedPolicy,
    st.dictionaries(PATHS, VALUES),
    st.dictionaries(st.sampled_from(["notify.target", "notify.command"]), st.sampled_from(["1", "2"])),
    st.sampled_from(["k1", "k2"]),
)


def folded(history: list[RecordedPolicy]) -> tuple[RecordedPolicy, list[dict[str, Any]]]:
    known, events = NOTHING, []
    for now in history:
        if (data := policy.recorded(known, now)) is not None:
            events.append(data)
            known = policy.after(known, data)
    return known, events


@given(st.lists(POLICIES, min_size=1, max_size=5))
def test_the_events_add_up_to_the_latest_policy(history: list[RecordedPolicy]) -> None:
    known, events = folded(history)
    assert policy.latest(events) == known
    last = history[-1]
    if last.fields or last.digests:
        assert (known.fields, known.digests) == (last.fields, last.digests)


@given(POLICIES)
def test_the_same_policy_is_recorded_once(now: RecordedPolicy) -> None:
    _, events = folded([now, now, now])
    assert len(events) <= 1


def test_each_field_has_its_old_and_its_new_value() -> None:
    before = RecordedPolicy({"approvals.approvers": ["ann"], "gates.quorum": "all", "trusted.bob": ["0f3a"]})
    now = RecordedPolicy({"approvals.approvers": ["ann", "bob"], "gates.quorum": "all", "limits.depth": 8})
    assert policy.changes(before, now) == {
        "approvals.approvers": {"old": ["ann"], "new": ["ann", "bob"]},
        "limits.depth": {"old": None, "new": 8},
        "trusted.bob": {"old": ["0f3a"], "new": None},
    }


def test_of_what_is_hidden_only_the_change_is_told() -> None:
    before = RecordedPolicy({"notify.target": HIDDEN}, {"notify.target": "1"}, "k1")
    now = RecordedPolicy({"notify.target": HIDDEN}, {"notify.target": "2"}, "k1")
    data = policy.recorded(before, now)
    assert data is not None
    assert data["changes"] == {"notify.target": {"old": HIDDEN, "new": HIDDEN}}
    assert "notify.target: changed, (hidden)" in policy.told({**data, "first": False, "by": "daemon"})


def test_with_another_key_it_is_not_known_whether_what_is_hidden_has_changed() -> None:
    before = RecordedPolicy({"notify.target": HIDDEN}, {"notify.target": "1"}, "k1")
    data = policy.recorded(before, RecordedPolicy({"notify.target": HIDDEN}, {"notify.target": "2"}, "k2"))
    assert data is not None
    assert data["changes"] == {}
    assert "not known" in policy.told({**data, "first": False, "by": "daemon"})
