"""`mailboxd audit`: archives alone."""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailboxd.cli.bars import bars
from mailboxd.cli.commands.audit import noted_head
from mailboxd.cli.key_option import named_key_option
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import columns
from mailboxd.errors import EXIT_NO

if TYPE_CHECKING:
    from mailboxd.operate.auditor.given import GivenKey


@verb(
    "audit",
    "audit mailbox/archive",
    "audit alpha beta --key alpha=alpha.pub --key beta=beta.pub --html report.html",
    "audit mailbox/archive --head 1200:9f2c... --json",
    exits={EXIT_NO: "something is wrong or missing (all of it is listed)"},
)
@click.argument("archives", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@named_key_option
@click.option("--head", metavar="SEQ:HASH", help="A head that was noted elsewhere (`mailboxd db head`).")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the report to FILE, which must not exist, too.",
)
def audit_command(
    session: Session, archives: tuple[Path, ...], keys: tuple[GivenKey, ...], head: str | None, html: Path | None
) -> int | None:
    """Judge the archives of one or more agents: what is proven, what is only consistent, what is wrong or missing.

    DIR is the directory archive/ of a mailbox, a mailbox, a workspace, or a task's export (also as .tar.gz); of several
    agents, messages are compared with each other. Neither workspace, daemon, database nor private key is needed,
    nothing in DIR is changed, and no link in it is followed.

    A public key (--key) that signed the journal proves it; without one, or after the last signed head, it is consistent
    at best. A key proves only its own agent, so with archives of several agents each key needs the name of its agent.
    """
    from mailboxd.formats.mailbox.files import directory, publish, world_errors
    from mailboxd.operate.auditor import report as reports
    from mailboxd.operate.auditor.given import GivenKeys, UnnamedKeysError
    from mailboxd.operate.auditor.perform import audit

    if len({path.resolve() for path in archives}) < len(archives):
        raise click.UsageError("an archive is given twice: name each one once")
    if html is not None and os.path.lexists(html):
        raise click.UsageError(f"--html: {html} is there already: name a new file")
    noted = noted_head(head)
    if noted is not None and len(archives) > 1:
        raise click.UsageError("--head is of one archive: audit that one by itself")
    try:
        with bars() as progress:
            report = audit(archives, GivenKeys.of(keys), noted, progress)
    except UnnamedKeysError as error:
        words = ["mailboxd", "audit", *map(str, archives)]
        for option in error.options():
            words += ["--key", option]
        raise click.UsageError(f"{error}: `{shlex.join(words)}`") from error
    if html is not None:
        raw = reports.page(report, session.clock.now()).encode("utf-8", "backslashreplace")
        with world_errors(f"write {html}"), directory(html.parent) as folder:
            publish(folder, html.name, raw)
    lines = reports.lines(report)
    session.show(reports.facts(report), wrapped(lines, columns()) if sys.stdout.isatty() else lines)
    return EXIT_NO if report.findings else None


def wrapped(lines: Iterable[str], wide: int) -> Iterator[str]:
    """The lines at the width of a terminal; what belongs to an entry stays below it."""
    for line in lines:
        below = " " * 14 if line.startswith("  ") else ""
        yield from textwrap.wrap(line, wide, subsequent_indent=below, break_on_hyphens=False) or [""]
