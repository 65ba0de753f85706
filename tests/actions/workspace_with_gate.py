"""A workspace with one gate in it, and the context for actions."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mailboxd.core.approvals import Action, ActionKind, ActionRules
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.perform.actions.gate import GateDir
from mailboxd.perform.actions.perform import Preview, perform, preview
from mailboxd.perform.actions.result import ActionContext, ActionResult

APPROVAL = "apr_01J9ZK2T0V8W5N3QXYZ4ABCDEF"


def action(kind: str, **fields: Any) -> Action:
    return Action(id="act", kind=ActionKind(kind), **fields)


@dataclass
class Workbench:
    """`do` previews an action and performs it."""

    root: Path
    outside: Path
    context: ActionContext
    gate: GateDir = field(init=False)

    def __post_init__(self) -> None:
        self.gate = GateDir(self.root, APPROVAL)
        self.gate.create()

    def show(self, act: Action) -> Preview:
        return preview(act, self.gate, self.context)

    def perform(self, act: Action, target_sha256: str = "", key: str = "key/1") -> ActionResult:
        return perform(act, key, target_sha256, self.gate, self.context)

    def do(self, act: Action) -> ActionResult:
        return self.perform(act, self.show(act).target_sha256)

    def given(self, **changes: Any) -> None:
        self.context = replace(self.context, **changes)


def stand(tmp_path: Path) -> Workbench:
    root, outside = tmp_path / "ws", tmp_path / "outside"
    outside.mkdir()
    Workspace.create(root)
    environ = {"PATH": os.environ["PATH"], "HOME": str(outside), "KEY": "hunter2", "OTHER": "other-secret"}
    return Workbench(
        root, outside, ActionContext(root, environ, time.monotonic, ActionRules(frozenset({"KEY"})), timeout=20)
    )
