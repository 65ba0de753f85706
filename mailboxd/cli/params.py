"""What the values of arguments and options may be. A shell hands over any bytes: what is no text is a surrogate."""

from __future__ import annotations

from typing import Any

import click

from mailboxd.core.terms import is_id
from mailboxd.errors import MessageError


class Id(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """The id of a task, an agent, a message (protocol section 2, "Ids")."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_id(value):
            rule = "1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -, without .."
            self.fail(f"{ascii(value)[:100]} is not an id: {rule}", param, ctx)
        return str(value)


class Words(click.ParamType):  # type: ignore[type-arg]
    """Text of the operator, in a form that a file and the database can hold."""

    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's signature
        from mailboxd.messages.text import clean

        return clean(value)


class Header(click.ParamType):  # type: ignore[type-arg]
    """The value of the header `header`, written as it would stand in the front matter of a message."""

    def __init__(self, header: str, shown: str) -> None:
        self.name = shown
        self._header = header

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from mailboxd.messages.headers import CONVERTERS

        if not isinstance(value, str):
            return value
        try:
            return CONVERTERS[self._header](value, lambda said: click.echo(f"{self._header}: {said}", err=True))
        except MessageError as error:
            self.fail(f"{error.problem}. {error.hint}".strip(), param, ctx)
