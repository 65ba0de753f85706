"""The sandbox that templates are rendered in: jinja2's, which here knows the one record that all of them are given."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import fields
from typing import Any

from jinja2.sandbox import SandboxedEnvironment

from mailboxd.core.model import Spec

_PARTS = frozenset(field.name for field in fields(Spec))


class Sandbox(SandboxedEnvironment):
    """As jinja2's. The parts of a spec are values, so none of them is asked whether it leads to Python's internals."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The attribute, or what stands for one that is missing or forbidden."""
        if type(obj) is Spec and attribute in _PARTS:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """What a template finds beside its values: a dict, for each rendering copies it; ours never change."""
        return {**self.globals, **(d or {})}
