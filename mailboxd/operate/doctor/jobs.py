"""What in the systemd units of this user, and in their crontab, calls mailboxd by a command that is gone."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from mailboxd.host.systemd_units import user_units
from mailboxd.operate.doctor.facts import CheckResult, Facts, Job, warning
from mailboxd.perform.agents.ask import ask
from mailboxd.perform.agents.process import NotStarted

CRONTAB = "the crontab"
REMOVED = {
    "approval list --all": "approve --history",
    "approval list --task": "approve --history --task",
    "approval list": "approve",
    "approval show": "show",
    "approval reject": "reject",
    "approval request-changes": "ask-changes",
    "approval undo": "undo --action",
    "accept": "resolve --done",
    "fail": "resolve --failed",
    "tree": "show --tree",
    "explain": "doctor",
    "check": "send --check",
}
"""Commands that were removed, each with what does the same; the longer words of one come before the shorter."""
_PLACE = r"""(?:"[^"]*"|'[^']*'|[^\s"']+)"""
_CALL = re.compile(
    r"""(?<![\w.])(?<!\w-)(?P<head>mailboxd["']?(?:\s+(?:(?:-w|--workspace)\s+"""
    + _PLACE
    + rf"""|--workspace={_PLACE}|--json))*\s+)"""
    + rf"""(?P<command>{"|".join(re.escape(words).replace(chr(92) + " ", chr(92) + "s+") for words in REMOVED)})"""
    + r"""(?=$|[\s"';&|)])"""
)
_EXEC = re.compile(r"Exec\w+\s*=")
_BYTES = 1 << 18
_SECONDS = 5.0


def renewed(line: str) -> str:
    """The line with the commands that replace the removed ones; itself if it calls none."""

    def new(found: re.Match[str]) -> str:
        words = " ".join(found["command"].split())
        named = line[found.end() :].strip(" \"'")
        return found["head"] + ("doctor --names" if words == "explain" and not named else REMOVED[words])

    return _CALL.sub(new, line)


def probe_jobs(environ: Mapping[str, str]) -> tuple[Job, ...]:
    """The lines of this user's units, their drop-ins and the crontab that call what is gone."""
    folder = user_units(environ)
    files = sorted([*folder.glob("*.service"), *folder.glob("*.service.d/*.conf")])
    found = [*((str(path), _calls(_text(path))) for path in files), (CRONTAB, _entries(_crontab(environ)))]
    return tuple(Job(place, number, line) for place, lines in found for number, line in lines if renewed(line) != line)


def _text(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        return file.read(_BYTES).decode("utf-8", "replace")
    return ""


def _calls(text: str) -> Iterator[tuple[int, str]]:
    """The commands in a unit, with those lines joined that continue."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        whole = line.strip()
        while whole.endswith("\\"):
            whole = f"{whole[:-1].rstrip()} {next(lines, (0, ''))[1].strip()}"
        if _EXEC.match(whole):
            yield number, whole


def _entries(text: str) -> Iterable[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("#"))


def _crontab(environ: Mapping[str, str]) -> str:
    """The crontab of this user; empty if there is none."""
    if shutil.which("crontab", path=environ.get("PATH")) is None:
        return ""
    with suppress(NotStarted):
        answer = ask(("crontab", "-l"), environ, _SECONDS)
        return answer.stdout[:_BYTES].decode("utf-8", "replace") if answer.rc == 0 else ""
    return ""


def removed(_: Facts, found: tuple[Job, ...]) -> Iterator[CheckResult]:
    for job in found:
        called = next(iter(_CALL.finditer(job.line)))["command"]
        edit = "crontab -e" if job.place == CRONTAB else f"${{EDITOR:-vi}} {shlex.quote(job.place)}"
        text = f"{job.place}, line {job.number}, calls `mailboxd {called}`, which does not exist any more: {job.line}"
        yield warning("removed-command", text, f"{edit}  # line {job.number}: {renewed(job.line)}")
