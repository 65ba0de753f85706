"""`mailboxd audit` on the export of a task, packed or not."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from mailboxd.errors import UnavailableError
from mailboxd.formats.keys import PrivateKey
from mailboxd.operate.auditor.given import GivenKey, GivenKeys
from mailboxd.operate.auditor.model import Verdict
from mailboxd.operate.auditor.perform import Report, audit
from tests.audit.archives import found
from tests.audit.test_export import exported, unpacked
from tests.e2e.support import Agent

KEY = PrivateKey.new()


def audited(path: Path, key: PrivateKey | None = KEY, name: str = "alpha") -> Report:
    return audit([path], GivenKeys.of([] if key is None else [GivenKey(key.public, name)]))


@pytest.fixture
def packed(alpha: Agent, tmp_path: Path) -> Path:
    return exported(alpha, tmp_path / "two.tar.gz", key=KEY)


@pytest.mark.parametrize("whole", [False, True])
def test_an_export_is_proven_by_its_key_and_without_it_consistent(alpha: Agent, tmp_path: Path, whole: bool) -> None:
    packed = exported(alpha, tmp_path / "whole.tar.gz", key=KEY, whole=whole)
    folder = unpacked(packed, tmp_path / "unpacked")
    for path in (packed, folder):
        report = audited(path)
        assert (found(report), report.verdict) == ([], Verdict.PROVEN)
        assert report.archives[0].form == "the export of a task"
        assert (found(audited(path, None)), audited(path, None).verdict) == ([], Verdict.CONSISTENT)
        assert audited(path, PrivateKey.new()).verdict is Verdict.CONSISTENT


def test_what_was_changed_in_an_export_is_named(packed: Path, tmp_path: Path) -> None:
    folder = unpacked(packed, tmp_path / "unpacked")
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    number = next(n for n, line in enumerate(sums, 1) if line.endswith("tasks.json"))
    (folder / "tasks.json").write_text("[]")
    (folder / "planted.md").write_text("x")
    assert found(audited(folder)) == [("file-changed", f"SHA256SUMS line {number}"), ("unrecorded", "planted.md")]
    assert audited(folder).archives[0].proof.seq == 0


def test_an_export_is_not_proven_by_the_key_of_another_agent(packed: Path) -> None:
    assert ("other-key", "export.json") in found(audited(packed, name="beta"))
    assert audited(packed, name="beta").archives[0].proof.seq == 0
    assert audited(packed, name="").verdict is Verdict.PROVEN


def test_a_noted_head_vouches_for_nothing_where_events_were_left_out(packed: Path, tmp_path: Path) -> None:
    """Whoever knows the head can end a forged export with the number and hash of its event."""
    folder = unpacked(packed, tmp_path / "unpacked")
    file = max((folder / "mailbox" / "archive" / "events").iterdir())
    last = [json.loads(line) for line in file.read_text().splitlines() if '"seq"' in line][-1]
    with file.open("a") as journal:
        journal.write(json.dumps({"seq": last["seq"] + 1, "hash": "5" * 64}) + "\n")
    report = audit([folder], GivenKeys(), (last["seq"] + 1, "5" * 64))
    assert report.archives[0].proven_to == 0
    assert [note for note in report.archives[0].notes if "vouches for nothing here" in note]


def test_another_description_is_given_away_by_its_signature(packed: Path, tmp_path: Path) -> None:
    folder = unpacked(packed, tmp_path / "unpacked")
    described = folder / "export.json"
    described.write_text(described.read_text().replace('"task": "two"', '"task": "six"'))
    assert ("export-signature", "export.json") in found(audited(folder))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"\x1f\x8b" + b"x" * 100)
    with pytest.raises(UnavailableError, match="no packed export"):
        audited(tmp_path / "x.tar.gz")
    with pytest.raises(UnavailableError):
        audited(tmp_path / "nothing")


def _packed(folder: Path, target: Path, change: Callable[[tarfile.TarFile], object]) -> Path:
    """The export packed anew; the members that `change` adds come first."""
    with tarfile.open(target, "w:gz") as tar:
        change(tar)
        tar.add(folder, folder.name)
    return target


def test_a_link_in_a_packed_export_is_named(packed: Path, tmp_path: Path) -> None:
    folder = unpacked(packed, tmp_path / "unpacked")

    def link(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo("two/artifacts/link")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)

    report = audited(_packed(folder, tmp_path / "linked.tar.gz", link))
    assert found(report) == [("odd", "artifacts/link")]
    assert report.archives[0].proof.seq == 0
    (folder / "artifacts" / "elsewhere").symlink_to("/etc")
    assert found(audited(folder)) == [("odd", "artifacts/elsewhere")]


def test_a_forged_file_that_a_genuine_one_hides_is_named(packed: Path, tmp_path: Path) -> None:
    folder = unpacked(packed, tmp_path / "unpacked")

    def forge(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo("two/tasks.json")
        member.size = 2
        tar.addfile(member, BytesIO(b"[]"))

    report = audited(_packed(folder, tmp_path / "twice.tar.gz", forge))
    assert found(report) == [("name-twice", "tasks.json")]


def test_an_export_whose_descriptions_are_huge_is_refused_before_they_are_read(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 70 << 20
    with gzip.open(tmp_path / "x.tar.gz", "wb", compresslevel=1) as file:
        file.write(member.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(70):
            file.write(bytes(1 << 20))
    with pytest.raises(UnavailableError, match="too large"):
        audited(tmp_path / "x.tar.gz")


def test_the_workspace_of_an_agent_that_keeps_its_prompts_has_no_findings(alpha: Agent) -> None:
    report = audited(alpha.root)
    assert found(report) == []
    assert report.archives[0].counts["prompts"] > 0
