"""The configuration of approvals: who decides, until when, and who is told (docs/side-effects.md)."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from mailboxd.config.fields import MaybeArguments, Persons, Recipient, Section, Variables, Whole
from mailboxd.config.fields import amount as _amount
from mailboxd.config.fields import said as _is

_DAY = 86_400
_YEAR = 366 * _DAY


class ApprovalsSection(Section):
    """What a person has to approve before it happens (docs/side-effects.md)."""

    expire_seconds: Whole = _amount(
        _DAY, "seconds", 1, _YEAR, "How long a request waits for you; then it has expired, and its task fails."
    )
    lobster: MaybeArguments = _is(
        ("lobster",), "The Lobster that stands before each side effect; none, or not installed: mailboxd alone does."
    )
    approvers: Persons = _is(
        (), "Users of this machine who may decide, and `key:...` for signed messages; none: who may use the workspace."
    )
    notify_command: MaybeArguments = _is(
        (), "A program that is told of each request: it gets the path of a JSON file as its last argument."
    )
    notify_channel: Recipient = _is("", "A channel of OpenClaw over which you are told, with `openclaw message send`.")
    notify_target: Recipient = _is("", "Whom to tell there, as `openclaw message send --target` takes it.")
    notify_account: Recipient = _is("", "The account of the channel, where it has several.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.notify_channel) != bool(self.notify_target):
            raise ValueError("write both notify_channel and notify_target, or neither")
        return self

    @property
    def notifies(self) -> bool:
        """Whether anybody is told."""
        return bool(self.notify_command or self.notify_channel)


class ActionsSection(Section):
    """Side effects that a person has approved (docs/side-effects.md)."""

    environment: Variables = _is((), "Names of environment variables of the daemon that an action may ask for.")
    timeout_seconds: Whole = _amount(300, "seconds", 1, _DAY, "The longest that one action may take.")
