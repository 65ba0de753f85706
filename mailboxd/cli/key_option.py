"""Public keys as arguments and options of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mailboxd.cli.operator_actions import read_text

if TYPE_CHECKING:
    from mailboxd.keys import PublicKey

_LARGEST = 4_096
_Command = TypeVar("_Command", bound=Callable[..., Any])


class Key(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """A public key, given directly or as the first line of a file."""

    name = "FILE|KEY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PublicKey:
        from mailboxd.keys import PublicKey

        if isinstance(value, PublicKey):
            return value
        text = value if value.startswith("ed25519:") else read_text(value, _LARGEST).strip().partition("\n")[0]
        try:
            return PublicKey.parse(text)
        except ValueError as error:
            self.fail(f"{error}; `mailboxd connect keys list` shows it", param, ctx)


def _checkable(_ctx: click.Context, _param: click.Parameter, keys: tuple[PublicKey, ...]) -> tuple[PublicKey, ...]:
    if keys:
        from mailboxd.keys import require_extra

        require_extra()
    return keys


def key_option(command: _Command) -> _Command:
    """Add `--key FILE|KEY`, which may be repeated, as the parameter `keys`: a tuple of public keys."""
    return click.option(
        "--key", "keys", type=Key(), multiple=True, callback=_checkable,
        help="A public key whose signatures prove the record; repeat it for each key that was in use.",
    )(command)  # fmt: skip
