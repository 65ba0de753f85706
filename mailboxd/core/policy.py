"""The configuration that decides what is allowed, as events record it: what changed, from what to what.

A policy is its fields by dotted path (`approvals.approvers`, `trusted.writer`). A field that may hold a secret is never
shown: it is `HIDDEN`, or the program of a command without its arguments, and a keyed digest tells whether it changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core.sanitize import first_line

HIDDEN = "(hidden)"
_MOST_TOLD = 6


@dataclass(frozen=True, slots=True)
class RecordedPolicy:
    """The fields as they are shown, the digests of those that are hidden, and which key made these."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    key: str = ""


NOTHING = RecordedPolicy()
"""What was recorded before the first event."""


def changes(before: RecordedPolicy, now: RecordedPolicy) -> dict[str, dict[str, Any]]:
    """The fields that differ, each with its old and its new value; None: there was none, or is none any more.

    Digests of different keys say nothing.
    """
    found = {}
    for path in sorted({*before.fields, *now.fields}):
        old, new = before.fields.get(path), now.fields.get(path)
        told = before.key == now.key and path in before.digests and path in now.digests
        if old != new or (told and before.digests[path] != now.digests[path]):
            found[path] = {"old": old, "new": new}
    return found


def recorded(before: RecordedPolicy, now: RecordedPolicy) -> dict[str, Any] | None:
    """What the event says beside its time and who read it; None: there is nothing to record."""
    changed = changes(before, now)
    digests = {path: now.digests.get(path) for path in {*before.digests, *now.digests}}
    differ = {path: one for path, one in digests.items() if before.digests.get(path) != one or before.key != now.key}
    if not changed and not differ:
        return None
    return {"changes": changed, "digests": dict(sorted(differ.items())), "key": now.key}


def after(policy: RecordedPolicy, data: Mapping[str, Any]) -> RecordedPolicy:
    """The policy after the event with this data."""
    fields, digests = dict(policy.fields), {} if data["key"] != policy.key else dict(policy.digests)
    for path, change in data["changes"].items():
        fields.pop(path, None)
        if change["new"] is not None:
            fields[path] = change["new"]
    for path, digest in data["digests"].items():
        digests.pop(path, None)
        if digest is not None:
            digests[path] = digest
    return RecordedPolicy(fields, digests, data["key"])


def latest(events: Iterable[Mapping[str, Any]]) -> RecordedPolicy:
    """The policy after all these events."""
    policy = NOTHING
    for data in events:
        policy = after(policy, data)
    return policy


def told(data: Mapping[str, Any]) -> str:
    """The event in words."""
    changed: Mapping[str, Mapping[str, Any]] = data["changes"]
    by = f"; read by {data['by']}"
    if data["first"]:
        return f"the policy is recorded for the first time, with {len(changed)} fields{by}"
    if not changed:
        return f"whether hidden fields of the configuration have changed is not known: their key is new{by}"
    parts = [f"{path}: {_step(**one)}" for path, one in changed.items()]
    more = f" and {len(parts) - _MOST_TOLD} more" if len(parts) > _MOST_TOLD else ""
    return f"the configuration has changed: {'; '.join(parts[:_MOST_TOLD])}{more}{by}"


def _step(old: Any, new: Any) -> str:
    return f"changed, {_value(new)}" if old == new else f"{_value(old)} -> {_value(new)}"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return first_line(f"[{', '.join(map(str, value))}]", 200)
    return first_line(str(value).lower() if isinstance(value, bool) else str(value), 200) or '""'
