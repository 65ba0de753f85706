"""`mailboxd audit`: lines that say more than their kind says, say it twice, or are missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from mailboxd.formats.keys import PrivateKey
from mailboxd.operate.auditor.report import verdict
from tests.audit.archives import Archive, audited, copy, earlier, found, rehash

KEY = PrivateKey.new()
FORGED = {"kind": "approval.resolved", "actor": "ceo", "data": {"changes": {"status": "approved"}}}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    alpha, _ = earlier(tmp_path_factory.mktemp("lines"))
    alpha.sign(KEY)
    return alpha


@pytest.fixture
def alpha(honest: Archive, tmp_path: Path) -> Archive:
    return copy(honest, tmp_path / "alpha")


@pytest.mark.parametrize("kind", ["format", "head", "body", "table", "prompt"])
def test_a_line_with_the_fields_of_an_event_beside_its_own_is_named(alpha: Archive, kind: str) -> None:
    lines = alpha.lines()
    if kind == "prompt":
        lines.append(
            {"prompt": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "text": "", "rev": 1}
        )
    number = next(n for n, said in enumerate(lines) if kind in said and "seq" not in said)
    lines[number] |= FORGED
    alpha.write(lines)
    assert ("other-names", f"archive/events/{alpha.days[0].name} line {number + 1}") in found(audited(alpha, key=KEY))


def test_a_head_with_more_than_its_four_values_is_named(alpha: Archive) -> None:
    lines = alpha.lines()
    del lines[-1]["head"]["signature"]
    alpha.write(lines)
    assert ("no-head", f"archive/events/{alpha.days[0].name} line {len(lines)}") in found(audited(alpha, key=KEY))


def _twice(said: Mapping[str, object], name: str, value: object) -> str:
    """A line that says this first, and then what it said."""
    return "{" + f"{json.dumps(name)}:{json.dumps(value)}," + json.dumps(said, separators=(",", ":"))[1:]


@pytest.mark.parametrize(("name", "value"), [("actor", "ceo"), ("data", {}), ("seq", 1), ("hash", "0" * 64)])
def test_a_name_that_is_said_twice_is_named(alpha: Archive, name: str, value: object) -> None:
    number = alpha.line_of("approval.resolved")
    raw = alpha.days[0].read_text().splitlines()
    raw[number - 1] = _twice(alpha.lines()[number - 1], name, value)
    alpha.days[0].write_text("".join(f"{line}\n" for line in raw))
    assert ("name-twice", f"archive/events/{alpha.days[0].name} line {number}") in found(audited(alpha, key=KEY))


@pytest.mark.parametrize("kind", ["body", "table", "head"])
def test_so_it_is_in_any_line(alpha: Archive, kind: str) -> None:
    raw = alpha.days[0].read_text().splitlines()
    number = next(n for n, said in enumerate(alpha.lines(), 1) if kind in said and "seq" not in said)
    raw[number - 1] = _twice(alpha.lines()[number - 1], kind, {"a": 1})
    alpha.days[0].write_text("".join(f"{line}\n" for line in raw))
    assert ("name-twice", f"archive/events/{alpha.days[0].name} line {number}") in found(audited(alpha, key=KEY))


def test_one_is_not_true(alpha: Archive) -> None:
    reason = alpha.file("bad.md.reason.json")
    said = json.loads(reason.read_text())
    lines = alpha.lines()
    rejected = next(one for one in lines if one.get("kind") == "message.rejected")
    rejected["data"]["message"]["reason"]["line"] = True
    rehash(lines)
    alpha.write(lines)
    reason.write_text(json.dumps({**said, "line": 1}))
    assert "reason" in [kind for kind, _ in found(audited(alpha))]


@pytest.mark.slow
def test_thousands_of_findings_of_one_kind_are_counted(alpha: Archive) -> None:
    with alpha.days[-1].open("a") as file:
        file.write("x\n" * 30_000)
    report = audited(alpha, key=KEY)
    assert len(report.findings) == 2_000
    assert verdict(report).endswith("(30000 findings)")
    assert any("findings of chain (not-a-line): 30000" in note for note in report.archives[0].notes)


def _asked(archive: Archive, text: str, *, kept: bool, row: bool = False) -> tuple[int, dict[str, object]]:
    """An event says that a turn was asked this; returns the number of its line, and the line with the text."""
    sha = hashlib.sha256(text.encode()).hexdigest()
    lines = [said for said in archive.lines() if "head" not in said]
    number = next(n for n, said in enumerate(lines) if said.get("kind") == "attempt.ended")
    if kept:
        lines[number]["data"]["turn"] = {"prompt": {"sha256": sha, "size": len(text), "text": "kept"}}
    rehash(lines)
    if row:
        rev = max(said["row"]["rev"] for said in lines if said.get("table") == "outbox") + 1
        last = next(said for said in reversed(lines) if said.get("table") == "outbox")
        lines.append({"table": "outbox", "row": {**last["row"], "rev": rev, "prompt": json.dumps({"sha256": sha})}})
    archive.write(lines)
    return number + 1, {"prompt": sha, "text": text, "rev": 1}


@pytest.mark.parametrize("before", [True, False])
def test_the_text_of_a_prompt_that_is_said_to_be_kept_is_there(alpha: Archive, before: bool) -> None:
    line, said = _asked(alpha, "Do it", kept=True)
    assert found(audited(alpha)) == [("no-prompt", f"archive/events/{alpha.days[0].name} line {line}")]
    lines = alpha.lines()
    lines.insert(1 if before else len(lines), said)
    alpha.write(lines)
    assert found(audited(alpha)) == []


def test_a_prompt_that_nothing_names_is_named_and_that_of_a_turn_that_runs_is_not(alpha: Archive) -> None:
    _, said = _asked(alpha, "Do it", kept=False)
    alpha.write([*alpha.lines(), said])
    assert found(audited(alpha)) == [
        ("unnamed-prompt", f"archive/events/{alpha.days[0].name} line {len(alpha.lines())}")
    ]
    _asked(alpha, "Do it", kept=False, row=True)
    assert found(audited(alpha)) == []


def test_bodies_that_were_taken_out_are_counted(alpha: Archive) -> None:
    assert not any("whose texts are not" in note for note in audited(alpha).archives[0].notes)
    lines = alpha.lines()
    alpha.write([said for said in lines if "body" not in said])
    removed = sum("body" in said for said in lines)
    notes = audited(alpha).archives[0].notes
    assert (
        f"tasks given to others whose texts are not in the journal: {removed}; their events have the digests" in notes
    )
