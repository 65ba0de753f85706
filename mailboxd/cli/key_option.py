"""Public keys as arguments and options of commands."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mailboxd.cli.operator_actions import read_text

if TYPE_CHECKING:
    from mailboxd.formats.keys import PublicKey

_LARGEST = 4_096
_OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,255}", re.ASCII)
_PRIVATE = "this is a private key, which nobody but its owner should have: give the public one"
_Keys = TypeVar("_Keys", bound=tuple[Any, ...])
_Command = TypeVar("_Command", bound=Callable[..., Any])


class Key(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """A public key, given directly or as the only line of a file."""

    name = "FILE|KEY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PublicKey:
        from mailboxd.formats.keys import PublicKey

        if isinstance(value, PublicKey):
            return value
        return self._read(value, param, ctx)

    def _read(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> PublicKey:
        from mailboxd.formats.keys import PublicKey

        if value.startswith("ed25519-private:"):
            self.fail(_PRIVATE, param, ctx)
        with suppress(OSError, ValueError):
            if Path(value).is_fifo() and not value.startswith("/dev/"):
                self.fail(f"{value} is a pipe, which was not opened", param, ctx)
        text = value if value.startswith("ed25519:") else read_text(value, _LARGEST)
        lines = [line for line in text.removeprefix("\ufeff").split("\n") if line.strip()]
        if len(lines) > 1:
            self.fail(f"{value} has {len(lines)} lines, and one key is read: give each key by itself", param, ctx)
        text = "".join(lines).strip()
        if text.startswith("ed25519-private:"):
            self.fail(_PRIVATE, param, ctx)
        try:
            return PublicKey.parse(text)
        except ValueError as error:
            self.fail(f"{error}; `mailboxd connect keys list` shows it", param, ctx)


class NamedKey(Key):
    """A public key, with the name of its owner before it: a file whose name looks so is given as `./a=b`."""

    name = "[AGENT=]FILE|KEY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from mailboxd.operate.auditor.given import GivenKey

        if isinstance(value, GivenKey):
            return value
        owner, equals, rest = value.partition("=")
        if not equals or not _OWNER.fullmatch(owner):
            return GivenKey(self._read(value, param, ctx), source=value)
        return GivenKey(self._read(rest, param, ctx), owner, rest)


def _checkable(_ctx: click.Context, _param: click.Parameter, keys: _Keys) -> _Keys:
    if keys:
        from mailboxd.formats.keys import require_extra

        require_extra()
    return keys


def key_option(command: _Command) -> _Command:
    """Add `--key FILE|KEY`, which may be repeated, as the parameter `keys`: a tuple of public keys."""
    return click.option(
        "--key", "keys", type=Key(), multiple=True, callback=_checkable,
        help="A public key whose signatures prove the record; repeat it for each key that was in use.",
    )(command)  # fmt: skip


def named_key_option(command: _Command) -> _Command:
    """Add `--key [AGENT=]FILE|KEY`, which may be repeated, as the parameter `keys`: a tuple of GivenKey."""
    return click.option(
        "--key", "keys", type=NamedKey(), multiple=True, callback=_checkable,
        help="A public key, and whose it is: it proves only the archive of AGENT. operator=FILE is for signed approval"
        " files. Repeat it for each key that was in use; without a name it is for archives of one agent.",
    )(command)  # fmt: skip
