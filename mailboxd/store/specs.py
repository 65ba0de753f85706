"""The spec of one task as it stands, for `mailboxd spec`."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from mailboxd.core.types import Policy, Spec
from mailboxd.core.weakness import say, weaknesses
from mailboxd.core.wire import from_json, to_json
from mailboxd.store.report import Report, Row


@dataclass(frozen=True, slots=True)
class Found:
    """`lacks` is empty when the spec is complete, as far as its text tells."""

    local_id: str
    title: str
    phase: str
    spec: Spec
    lacks: str

    def as_json(self) -> Row:
        spec = {field.name: to_json(getattr(self.spec, field.name)) for field in fields(Spec)}
        return {"task": self.local_id, "title": self.title, "phase": self.phase, "lacks": self.lacks, "spec": spec}


def spec_of(report: Report, task_id: str) -> Found:
    """The spec of the task with this id. Raises KeyError for an unknown one."""
    row = report.db.execute(
        "SELECT local_id, title, phase, spec, policy FROM tasks WHERE id = ?", (task_id,)
    ).fetchone()
    if row is None:
        raise KeyError(task_id)
    local_id, title, phase, text, rules = row
    spec, policy = from_json(Spec, json.loads(text)), from_json(Policy, json.loads(rules))
    return Found(local_id, title, phase, spec, say(weaknesses(spec, policy.weak)))
