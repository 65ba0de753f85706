"""Whatever value stands anywhere in a line or a description, an audit ends with a report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mailboxd.errors import UnavailableError
from mailboxd.formats.keys import PrivateKey
from mailboxd.operate.auditor.given import GivenKeys
from mailboxd.operate.auditor.perform import Report, audit
from mailboxd.operate.auditor.report import facts, lines, page
from tests.audit.archives import Archive, days_of_work, earlier, given, rehash

KEY = PrivateKey.new()
DEEP = 3_000
VALUES = (
    "null", "true", "false", "0", "1", "-1", "5", "1.5", "1e400", "NaN", "1" + "0" * 30, "1" + "0" * 6_000, "[]", "[1]",
    '[["a","b"]]', "{}", '{"a":1}', '""', '"a"', '"archive/a\\u0000b"', '"archive/a"', '"archive/../a"', '"outbox/"',
    '"/"', '"\\udcff"',
    '"archive/\\ud800"', f'"archive/{"x" * 5000}"', '"\\u202e\\u001b[2J\\n"', "[" * DEEP + "]" * DEEP,
)  # fmt: skip
_HOLE = "the value to be changed"


def places(said: object) -> Iterator[tuple[Any, ...]]:
    """The place of each value in a line."""
    inside = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    for name, value in inside:
        yield (name,)
        yield from ((name, *below) for below in places(value))


def changed(said: Any, place: tuple[Any, ...], value: str) -> str:
    """A line in which this JSON stands at the place."""
    *above, name = place
    copy = inner = json.loads(json.dumps(said))
    for one in above:
        inner = inner[one]
    inner[name] = _HOLE
    return json.dumps(copy, separators=(",", ":")).replace(json.dumps(_HOLE), value)


def changes(said: list[dict[str, Any]]) -> list[tuple[int, tuple[Any, ...], str]]:
    """Each value of each kind of line with each other value: number of the line, place, JSON."""
    kinds = {str(one.get("kind") or next(iter(one))): n for n, one in reversed([*enumerate(said)])}
    return [(n, place, value) for n in kinds.values() for place in places(said[n]) for value in VALUES]


def shown(report: Report) -> None:
    assert "\n".join(lines(report))
    assert json.dumps(facts(report))
    assert page(report, "now").encode("utf-8")


def judged(archive: Archive, line: int, text: str, *others: Archive, hashed: bool) -> None:
    said: list[Any] = archive.lines()
    raw = [json.dumps(one, separators=(",", ":")) for one in said]
    raw[line] = text
    if hashed:  # what follows is judged, and not only that the hash is wrong
        with suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
            said[line] = json.loads(text)
            rehash(said)
            raw = [json.dumps(one, separators=(",", ":")) for one in said]
    before = archive.days[-1].read_bytes()
    archive.days[-1].write_text("".join(f"{one}\n" for one in raw))
    shown(audit([archive.root, *(other.root for other in others)], given(alpha=KEY, beta=PrivateKey.new())))
    archive.days[-1].write_bytes(before)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> tuple[Archive, Archive, Archive]:
    root = tmp_path_factory.mktemp("any")
    alpha, beta = earlier(root)
    alpha.sign(KEY)
    return alpha, beta, days_of_work(root / "days", 1, KEY)


@pytest.mark.slow
@pytest.mark.parametrize("which", range(3), ids=["alpha", "beta", "later"])
@pytest.mark.parametrize("count", [25, pytest.param(4_000, marks=pytest.mark.soak)])
def test_any_value_in_any_line_leaves_a_report(
    agents: tuple[Archive, Archive, Archive], which: int, count: int
) -> None:
    archive, other = agents[which], [agents[1], agents[0], agents[0]][which]
    said = archive.lines()
    every = changes(said)
    for n, (line, place, value) in enumerate(every if count > len(every) else Random(which).sample(every, count)):
        judged(archive, line, changed(said[line], place, value), *([other] if n % 2 else ()), hashed=n % 4 > 1)


DESCRIBED = {
    "format": "mailboxd-export-1", "agent": "alpha", "task": "t", "task_id": "x", "database": "d", "ended": True,
    "whole": False, "first": 1, "last": 1, "before": "0" * 64, "at": "2026-03-01T08:00:00.000Z", "events": 1,
    "withheld": 0, "sums": "0" * 64, "key": "", "signature": "",
}  # fmt: skip


def described(folder: Path, text: str) -> None:
    (folder / "export.json").write_text(text)
    with suppress(UnavailableError):
        shown(audit([folder], GivenKeys.of([])))


@pytest.mark.slow
def test_any_value_in_the_description_of_an_export_leaves_a_report(
    agents: tuple[Archive, Archive, Archive], tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    shutil.copytree(agents[0].root / "mailbox", folder / "mailbox")
    (folder / "SHA256SUMS").write_text("")
    for place in places(DESCRIBED):
        for value in VALUES[:: 3 if place[0] in ("format", "signature", "sums") else 15]:
            described(folder, changed(DESCRIBED, place, value))
    for name in DESCRIBED:
        described(folder, json.dumps({key: value for key, value in DESCRIBED.items() if key != name}))


@pytest.mark.parametrize("gone", [n for n in DESCRIBED if n not in ("format", "signature")])
def test_a_signed_description_without_one_of_its_values_leaves_a_report(
    agents: tuple[Archive, Archive, Archive], tmp_path: Path, gone: str
) -> None:
    folder = tmp_path / "t"
    shutil.copytree(agents[0].root / "mailbox" / "archive" / "events", folder / "mailbox" / "archive" / "events")
    (folder / "SHA256SUMS").write_text("")
    said = {name: value for name, value in DESCRIBED.items() if name not in (gone, "signature")}
    raw = b"mailboxd-export-1\n" + json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    (folder / "export.json").write_text(json.dumps(said | {"signature": KEY.sign(raw)}))
    shown(audit([folder], given(alpha=KEY)))


def test_values_that_ended_an_audit_are_named(agents: tuple[Archive, Archive, Archive]) -> None:
    alpha, beta, _ = agents
    for archive, kind, place, value in (
        (alpha, "message.filed", ("data", "path"), "archive/a\0b"),
        (alpha, "message.sent", ("data", "message", "path"), 5),
        (beta, "task.created", ("data", "task", "origin", "attempt_id"), [1]),
    ):
        before = archive.days[-1].read_bytes()
        said = archive.lines()
        line = archive.line_of(kind)
        inner = said[line - 1]
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
        rehash(said)
        archive.write(said)
        kinds = [
            finding.kind for finding in audit([alpha.root, beta.root], GivenKeys.of([])).findings
            if finding.where.line == line
        ]  # fmt: skip
        archive.days[-1].write_bytes(before)
        assert "no-event" in kinds, (kind, value)


def test_a_packed_export_with_a_flipped_byte_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x").write_bytes(Random(1).randbytes(50_000))
    packed = Path(shutil.make_archive(str(tmp_path / "t"), "gztar", tmp_path, "t"))
    raw = bytearray(packed.read_bytes())
    for place in range(12, len(raw), len(raw) // 40):
        packed.write_bytes(bytes([*raw[:place], raw[place] ^ 0x5A, *raw[place + 1 :]]))
        with pytest.raises(UnavailableError):
            audit([packed], GivenKeys.of([]))
