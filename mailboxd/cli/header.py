"""Options whose values are headers of a message: read by the same converters as in a file (protocol section 2)."""

from __future__ import annotations

from typing import Any

import click

from mailboxd.errors import MessageError


class Header(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """The value of the header `header`, written as it would stand in the front matter."""

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
