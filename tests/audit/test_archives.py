"""`mailboxd audit`: archives alone. Each fraud is named with its line, and an honest archive has no findings."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from mailboxd.cli.commands.auditor import wrapped
from mailboxd.cli.program import program
from mailboxd.cli.session import Session
from mailboxd.errors import UnavailableError
from mailboxd.formats.keys import PrivateKey
from mailboxd.formats.protocol.front_matter import canonical, with_signature
from mailboxd.formats.protocol.messages import ApprovalMessage, parse_message, render_message
from mailboxd.operate.auditor import reading
from mailboxd.operate.auditor.approvals import BY_COMMAND, says_the_same
from mailboxd.operate.auditor.given import GivenKey, GivenKeys, UnnamedKeysError
from mailboxd.operate.auditor.model import Verdict
from mailboxd.operate.auditor.perform import audit
from mailboxd.operate.auditor.place import Place
from mailboxd.operate.auditor.record import Record
from mailboxd.operate.auditor.report import consistent, decided, verdict
from mailboxd.operate.auditor.report import lines as lines_of
from tests.audit.archives import Archive, Said, audited, continued, copy, days_of_work, earlier, found, given, rehash
from tests.rebuild.mailroom import Mailroom

KEY, BETA = PrivateKey.new(), PrivateKey.new()
BOTH = given(alpha=KEY, beta=BETA)
DAY = "archive/events/2026-11-26.jsonl"


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Archive, Archive]:
    alpha, beta = earlier(tmp_path_factory.mktemp("earlier"))
    alpha.sign(KEY)
    beta.sign(BETA)
    return alpha, beta


@pytest.fixture
def alpha(both: tuple[Archive, Archive], tmp_path: Path) -> Archive:
    return copy(both[0], tmp_path / "alpha")


@pytest.fixture
def beta(both: tuple[Archive, Archive], tmp_path: Path) -> Archive:
    return copy(both[1], tmp_path / "beta")


@pytest.fixture(scope="session")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return days_of_work(tmp_path_factory.mktemp("days") / "ws", 3, KEY)


@pytest.fixture
def days(three_days: Archive, tmp_path: Path) -> Archive:
    return copy(three_days, tmp_path / "days")


# Honest archives


def test_with_the_key_an_honest_archive_is_proven_and_without_it_consistent(alpha: Archive, beta: Archive) -> None:
    report = audited(alpha, beta, keys=BOTH)
    assert (report.verdict, found(report)) == (Verdict.PROVEN, [])
    assert report.crossed.both == 2
    (decision, pending) = report.archives[0].decisions
    assert (decision.status, decision.by, decision.performed, decision.proven) == ("approved", "root", "done", True)
    assert decision.file.endswith(".approval.operator.acts.qp88rt.md")
    assert pending.status == "pending"
    assert audited(alpha, beta).verdict is Verdict.CONSISTENT


@pytest.mark.slow
def test_what_came_after_the_last_head_is_consistent_only(days: Archive) -> None:
    days.edit(lambda lines: lines.pop())
    report = audited(days, key=KEY)
    (judged,) = report.archives
    assert (report.verdict, found(report)) == (Verdict.CONSISTENT, [])
    assert 0 < judged.proof.seq < judged.events


def test_the_archive_folder_alone_the_mailbox_and_the_workspace_are_accepted(alpha: Archive) -> None:
    forms = {
        path: audited(path, key=KEY).archives[0]
        for path in (alpha.root, alpha.root / "mailbox", alpha.root / "mailbox" / "archive")
    }
    assert [judged.form for judged in forms.values()] == ["a workspace", "a mailbox", "an archive folder"]
    assert [judged.findings for judged in forms.values()] == [[], [], []]
    assert any(note.startswith("outbox/ was not handed in") for note in list(forms.values())[2].notes)
    with pytest.raises(UnavailableError, match="there is no archive in it"):
        audit([alpha.root / "tasks"], GivenKeys())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_histories_have_no_findings_while_a_daemon_writes(tmp_path: Path, seed: int) -> None:
    room = Mailroom.begin(tmp_path / "ws", seed)
    for number in range(120):
        room.step()
        if number % 20 == 19:
            assert found(audited(room.ws.root)) == []
    file = room.journal[-1]
    file.write_bytes(file.read_bytes() + b'{"seq":99999,"at":"2026')
    assert found(audited(room.ws.root)) == []
    room.settle()
    assert found(audited(room.ws.root)) == []
    room.close()


# Frauds: the chain


def resolve_by(name: str, archive: Archive) -> None:
    def change(lines: list[Said]) -> None:
        said = next(said for said in lines if said.get("kind") == "approval.resolved")
        said["actor"] = said["data"]["changes"]["resolved_by"] = name
        rehash(lines)

    archive.edit(change)


def test_another_approver_with_all_hashes_computed_anew_is_given_away_by_the_signature(alpha: Archive) -> None:
    resolve_by("mallory", alpha)
    head, event = alpha.line_of("head"), alpha.line_of("approval.resolved")
    for file in (alpha.root / "mailbox" / "archive" / "2026-11-26").glob("*approval*"):
        file.unlink()
    kinds = found(audited(alpha, key=KEY))
    assert ("invalid", f"{DAY} line {head}") in kinds
    assert "proven" not in audited(alpha).verdict
    assert event < head


def test_without_a_key_it_is_given_away_by_the_approval_file_and_never_proven(alpha: Archive) -> None:
    resolve_by("mallory", alpha)
    report = audited(alpha)
    (other,) = [finding for finding in report.findings if finding.kind == "other-approver"]
    assert str(other.where) == f"{DAY} line {alpha.line_of('approval.resolved')}"
    assert "root" in other.problem
    assert "mallory" in other.problem
    assert report.archives[0].proof.seq == 0


def test_a_history_rewritten_without_a_trace_is_consistent_and_not_proven(days: Archive) -> None:
    for day in range(3):
        days.write([said for said in days.lines(day) if "head" not in said], day)
    report = audited(days, key=KEY)
    assert (report.verdict, found(report)) == (Verdict.CONSISTENT, [])


def test_a_changed_line_is_named_and_only_that(days: Archive) -> None:
    line = next(n for n, said in enumerate(days.lines(1)) if n > 5 and "seq" in said)
    days.edit(lambda lines: lines[line].update(actor="mallory"), 1)
    assert found(audited(days, key=KEY)) == [("changed", f"archive/events/2026-03-02.jsonl line {line + 1}")]


def test_a_changed_hash_is_named_and_only_that(days: Archive) -> None:
    line = next(n for n, said in enumerate(days.lines(1)) if n > 5 and "seq" in said)
    days.edit(lambda lines: lines[line].update(hash="0" * 64), 1)
    assert found(audited(days))[0] == ("changed", f"archive/events/2026-03-02.jsonl line {line + 1}")
    assert len(found(audited(days))) == 1


def test_data_that_says_something_else_than_what_was_hashed_is_a_change(days: Archive) -> None:
    """A second `data` in one line: readers take the last, and whoever hashes the text takes the first."""
    path = days.days[0]
    lines = path.read_text().splitlines(keepends=True)
    line = next(n for n, text in enumerate(lines) if '"message.filed"' in text)
    lines[line] = lines[line].rstrip()[:-1] + ',"data":{"at":"x","id":"y","path":"z","v":2}}\n'
    path.write_text("".join(lines))
    assert ("changed", f"archive/events/{path.name} line {line + 1}") in found(audited(days))


@pytest.mark.parametrize("day", [0, 1])
def test_a_day_that_was_removed_is_missing_before_the_line_that_goes_on(days: Archive, day: int) -> None:
    lost = [said["seq"] for said in days.lines(day) if "seq" in said]
    days.days[day].unlink()
    report = audited(days, key=KEY)
    where = f"{DAY[:15]}{days.days[day].name} line 1"
    (missing,) = [finding for finding in report.findings if finding.kind == "missing-events"]
    assert (str(missing.where), missing.missing) == (where, True)
    assert f"events {lost[0]} to {lost[-1]} are missing" in missing.problem
    assert {finding.check for finding in report.findings} <= {"chain", "files"}


def test_a_last_day_that_was_removed_shows_by_the_files_that_nobody_recorded(days: Archive) -> None:
    days.days[-1].unlink()
    findings = audited(days, key=KEY).findings
    assert {finding.kind for finding in findings} == {"unrecorded"}
    assert all("was its end cut off?" in finding.problem for finding in findings if "2026-03-03" in finding.where.file)


def test_a_last_day_removed_with_its_files_cannot_be_known_and_the_report_says_so(days: Archive) -> None:
    days.days[-1].unlink()
    for folder in (days.root / "mailbox").glob("*/2026-03-03"):
        shutil.rmtree(folder)
    report = audited(days, key=KEY)
    assert [finding for finding in report.findings if "2026-03-03" in finding.where.file] == []
    assert any("would not show if it was cut off" in note for note in report.archives[0].notes)


def test_a_head_that_was_noted_elsewhere_shows_what_is_missing_at_the_end(days: Archive) -> None:
    last = next(said for said in reversed(days.lines()) if "seq" in said)
    noted = (last["seq"], last["hash"])
    assert audited(days, noted=noted).verdict is Verdict.PROVEN
    days.days[-1].unlink()
    assert "noted-head" in {kind for kind, _ in found(audited(days, noted=noted))}


def test_a_truncated_file_is_named(days: Archive) -> None:
    path = days.days[1]
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    kinds = dict(found(audited(days, key=KEY)))
    assert kinds["torn"].startswith("archive/events/2026-03-02.jsonl line ")
    assert kinds["missing-events"] == "archive/events/2026-03-03.jsonl line 1"


def test_a_signed_head_shows_that_the_end_was_cut_off(days: Archive) -> None:
    def change(lines: list[Said]) -> None:
        events = [n for n, said in enumerate(lines) if "seq" in said]
        del lines[events[-3] : events[-1] + 1]

    days.edit(change)
    assert ("end-missing", f"archive/events/2026-03-03.jsonl line {days.line_of('head')}") in found(
        audited(days, key=KEY)
    )


def test_a_line_that_was_put_in_is_named(days: Archive) -> None:
    line = next(n for n, said in enumerate(days.lines(1)) if n > 5 and "seq" in said)
    days.edit(lambda lines: lines.insert(line + 1, dict(lines[line], actor="mallory")), 1)
    assert found(audited(days, key=KEY)) == [("inserted", f"archive/events/2026-03-02.jsonl line {line + 2}")]


def test_a_forged_line_before_the_real_one_is_named(days: Archive) -> None:
    line = next(n for n, said in enumerate(days.lines(1)) if n > 5 and "seq" in said)
    days.edit(lambda lines: lines.insert(line, dict(lines[line], actor="mallory", hash="1" * 64)), 1)
    assert ("changed", f"archive/events/2026-03-02.jsonl line {line + 1}") in found(audited(days, key=KEY))


def test_events_in_another_order_are_named(days: Archive) -> None:
    lines = days.lines(1)
    first = next(n for n in range(6, len(lines)) if "seq" in lines[n] and "seq" in lines[n + 1])
    lines[first], lines[first + 1] = lines[first + 1], lines[first]
    days.write(lines, 1)
    assert ("reordered", f"archive/events/2026-03-02.jsonl line {first + 2}") in found(audited(days, key=KEY))


def test_a_file_of_another_journal_is_named(days: Archive, tmp_path: Path) -> None:
    other = days_of_work(tmp_path / "other", 3, KEY, seed=2)
    shutil.copy(other.days[1], days.days[1])
    assert ("first-line", "archive/events/2026-03-02.jsonl line 1") in found(audited(days, key=KEY))


def test_an_event_of_a_later_day_is_named(alpha: Archive) -> None:
    alpha.days[0].rename(alpha.events / "2026-11-25.jsonl")
    assert ("other-day", "archive/events/2026-11-25.jsonl line 2") in found(audited(alpha))


# Frauds: heads


def test_a_head_of_another_journal_is_named(days: Archive, alpha: Archive) -> None:
    head = alpha.lines()[-1]
    days.edit(lambda lines: lines.append(head))
    line = len(days.lines())
    assert f"archive/events/2026-03-03.jsonl line {line}" in {where for _, where in found(audited(days, key=KEY))}
    assert f"archive/events/2026-03-03.jsonl line {line}" in {where for _, where in found(audited(days))}


def test_a_head_that_was_moved_is_named(days: Archive) -> None:
    head = days.lines(0)[-1]
    days.edit(lambda lines: lines.append(head))
    where = f"archive/events/2026-03-03.jsonl line {len(days.lines())}"
    assert ("moved-head", where) in found(audited(days, key=KEY))


def test_two_heads_that_disagree_are_named(days: Archive) -> None:
    def change(lines: list[Said]) -> None:
        lines.append({"head": lines[-1]["head"] | {"hash": "1" * 64}})

    days.edit(change)
    where = f"archive/events/2026-03-03.jsonl line {len(days.lines())}"
    assert ("heads-disagree", where) in found(audited(days, key=KEY))


def test_another_key_from_some_line_on_is_said_and_proves_nothing(days: Archive) -> None:
    other = PrivateKey.new()
    days.edit(lambda lines: lines.pop())
    days.sign(other)
    (judged,) = audited(days, key=KEY).archives
    assert judged.verdict is Verdict.CONSISTENT
    line = f"archive/events/2026-03-03.jsonl line {len(days.lines())}: from here on heads are signed with the key"
    assert any(note.startswith(line) and other.public.fingerprint in note for note in judged.notes)


def test_no_head_that_is_none_ends_the_audit(days: Archive) -> None:
    days.edit(lambda lines: lines.append({"head": {"seq": "1"}}))
    assert ("no-head", f"archive/events/2026-03-03.jsonl line {len(days.lines())}") in found(audited(days, key=KEY))


# Whose a key is


def signed_by_beta(alpha: Archive) -> Archive:
    """beta writes alpha's archive anew, and signs it with the key that it has."""
    resolve_by("mallory", alpha)
    alpha.edit(lambda lines: lines.pop())
    for file in (alpha.root / "mailbox" / "archive" / "2026-11-26").glob("*approval*"):
        file.unlink()
    alpha.sign(BETA)
    return alpha


def test_the_key_of_another_agent_proves_nothing_and_is_named_in_both_archives(alpha: Archive, beta: Archive) -> None:
    head = f"{DAY} line {signed_by_beta(alpha).line_of('head')}"
    report = audited(alpha, beta, keys=BOTH)
    kinds = {finding.kind: finding for finding in report.archives[0].findings}
    assert str(kinds["other-key"].where) == str(kinds["shared-key"].where) == head
    assert f"the key {BETA.public.fingerprint} of beta" in kinds["other-key"].problem
    assert report.archives[0].proof.seq == 0
    assert found(report.archives[1]) == [("shared-key", f"{DAY} line {beta.line_of('head')}")]


def test_a_key_that_is_not_known_and_has_signed_two_agents_archives_is_named_in_both(
    alpha: Archive, beta: Archive
) -> None:
    signed_by_beta(alpha)
    shared = [finding for finding in audited(alpha, beta).findings if finding.kind == "shared-key"]
    assert [str(one.where) for one in shared] == [f"{DAY} line {side.line_of('head')}" for side in (alpha, beta)]


def test_keys_of_several_agents_archives_need_names(alpha: Archive, beta: Archive) -> None:
    with pytest.raises(UnnamedKeysError, match=r"\(alpha, beta\)"):
        audited(alpha, beta, key=KEY)
    assert audited(alpha, alpha, key=KEY).verdict is Verdict.PROVEN


def test_the_command_says_how_to_name_them(alpha: Archive, beta: Archive, tmp_path: Path) -> None:
    one, two = public(tmp_path, "alpha", KEY), public(tmp_path, "other", BETA)
    done = run(alpha.root, beta.root, "--key", one, "--key", two)
    told = " ".join(done.stderr.replace("│", " ").split())
    assert done.exit_code == 2
    assert f"`mailboxd audit {alpha.root} {beta.root} --key alpha={one} --key AGENT={two}`" in told
    again = run(alpha.root, beta.root, "--key", f"alpha={one}", "--key", f"beta={two}")
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize("name", ["alpha", "Alpha", "far.alpha"])
def test_the_report_says_for_whom_the_key_was_given_that_proves(alpha: Archive, tmp_path: Path, name: str) -> None:
    key = f"{name}={public(tmp_path, 'some', KEY)}"
    by = f"by the key {KEY.public.fingerprint} (given as that of {name})"
    assert by in run(alpha.root, "--key", key).stdout
    proven = json.loads(run(alpha.root, "--key", key, "--json").stdout)["archives"][0]["proven"]
    assert (proven["key"], proven["key_of"]) == (KEY.public.fingerprint, name)
    run(alpha.root, "--key", key, "--html", tmp_path / "report.html")
    assert by in (tmp_path / "report.html").read_text()
    unnamed = run(alpha.root, "--key", public(tmp_path, "some", KEY))
    assert f"by the key {KEY.public.fingerprint} (given without a name)" in unnamed.stdout


def test_the_name_of_another_host_does_not_count_where_an_agent_is_called_so(alpha: Archive, beta: Archive) -> None:
    keys = GivenKeys.of(given(**{"beta.alpha": KEY}).keys)
    assert keys.name_for(KEY.public.fingerprint, "alpha", ["alpha", "beta"]) == "beta.alpha"
    assert keys.name_for(KEY.public.fingerprint, "alpha", ["alpha", "beta.alpha"]) is None
    assert keys.name_for(KEY.public.fingerprint, "beta", ["alpha", "beta"]) is None


def approved_by_file(alpha: Archive, key: PrivateKey) -> None:
    """As if the approval had come as a file that is signed with this key."""
    file = alpha.file("*.approval.operator.*.md")
    raw = file.read_bytes().replace(b"decided_by: root\n", b"")
    raw = with_signature(raw, key.sign(canonical(raw)))
    file.write_bytes(raw)

    def change(lines: list[Said]) -> None:
        signer = key.public.fingerprint
        for said in lines:
            if said.get("kind") == "message.received" and said["data"]["message"]["type"] == "approval":
                row = {"sha256": hashlib.sha256(raw).hexdigest(), "size": len(raw), "signer": signer}
                said["data"]["message"] |= row
            if said.get("kind") == "approval.resolved":
                said["actor"] = said["data"]["changes"]["resolved_by"] = f"key:{signer}"
        rehash(lines)
        del lines[-1]

    alpha.edit(change)
    alpha.sign(KEY)


def test_an_approval_counts_as_the_operators_by_a_key_that_was_given_for_the_operator(alpha: Archive) -> None:
    operator = PrivateKey.new()
    approved_by_file(alpha, operator)
    report = audited(alpha, keys=given(alpha=KEY, operator=operator))
    assert (report.verdict, found(report)) == (Verdict.PROVEN, [])
    mark = operator.public.fingerprint
    assert report.archives[0].decisions[0].signed == f"valid: operator, key {mark}"
    (judged,) = audited(alpha, keys=given(operator=operator)).archives
    assert (judged.proof.seq, judged.findings) == (0, [])
    (judged,) = audited(alpha, key=operator).archives
    said = f"valid: key {mark}, given without a name; the file says that it is from operator"
    assert (judged.decisions[0].signed, judged.findings) == (said, [])
    assert "not checked" in audited(alpha, key=KEY).archives[0].decisions[0].signed


@pytest.mark.parametrize("keys", [given(alpha=KEY), given(beta=KEY), GivenKeys.of([GivenKey(KEY.public)])])
def test_an_approval_that_an_agent_has_signed_as_the_operator_is_named(alpha: Archive, keys: GivenKeys) -> None:
    approved_by_file(alpha, KEY)
    signature = [finding for finding in audited(alpha, keys=keys).findings if finding.kind == "approval-signature"]
    assert len(signature) == 1
    assert "says that it is from operator" in signature[0].problem


# Frauds: times


# What a head vouches for


def test_an_event_that_does_not_hash_is_not_proven_by_a_later_head_nor_is_what_follows(days: Archive) -> None:
    """It begins on the second day: the head of the first one is the last that vouches for anything."""
    line = next(n for n, said in enumerate(days.lines(1)) if n > 5 and "seq" in said)
    changed = days.lines(1)[line]["seq"]
    first = days.lines(0)[-1]["head"]["seq"]
    days.edit(lambda lines: lines[line].update(actor="mallory"), 1)
    (judged,) = audited(days, key=KEY).archives
    assert judged.proven_to == judged.proven["events"] == first < changed
    assert consistent(judged).startswith(f"events {first + 1} to {judged.events}: event {changed} is not what was")
    last = next(said for said in reversed(days.lines()) if "seq" in said)
    assert audited(days, noted=(last["seq"], last["hash"])).archives[0].proven_to == 0


def test_a_removed_event_is_not_proven_nor_is_what_follows(days: Archive) -> None:
    line = next(n for n, said in enumerate(days.lines(1)) if n > 5 and "seq" in said)
    first = days.lines(0)[-1]["head"]["seq"]
    days.edit(lambda lines: lines.pop(line), 1)
    (judged,) = audited(days, key=KEY).archives
    assert judged.proven_to == first


def test_heads_that_speak_against_what_is_not_proven_are_named_where_it_stands(days: Archive) -> None:
    for day in (1, 2):
        lines = days.lines(day)
        before = next(said for said in reversed(days.lines(day - 1)) if "seq" in said)
        lines[0]["after"][1] = before["hash"]
        next(said for said in lines if "seq" in said)["actor"] = f"mallory{day}"
        rehash(lines, before["hash"])
        days.write(lines, day)
    report = audited(days, key=KEY)
    (judged,) = report.archives
    text = "\n".join(lines_of(report))
    assert "2 signed heads after event" in judged.contradicted
    assert "  not proven  events" in text
    assert "after the last signed head" not in text


def test_the_verdict_says_what_vouches(days: Archive) -> None:
    last = next(said for said in reversed(days.lines()) if "seq" in said)
    noted = (last["seq"], last["hash"])
    assert verdict(audited(days, noted=noted)).startswith("proven: the head that was noted elsewhere vouches")
    assert verdict(audited(days, noted=noted, key=KEY)).startswith("proven: a key that you gave has signed")


def test_lists_for_people_are_no_evidence_and_one_of_an_invented_day_is_named(alpha: Archive) -> None:
    folder = alpha.root / "mailbox" / "archive"
    (folder / "2026-11-26" / "INDEX.md").write_text("All is well.\n")
    (judged,) = audited(alpha, key=KEY).archives
    assert judged.findings == []
    assert [note for note in judged.notes if "INDEX.md" in note and "not judged" in note]
    (folder / "2026-11-20").mkdir()
    (folder / "2026-11-20" / "INDEX.md").write_text("All is well.\n")
    assert found(audited(alpha, key=KEY)) == [("index", "archive/2026-11-20/INDEX.md")]


def test_a_decision_that_does_not_count_any_more_is_shown_with_what_became_of_it(alpha: Archive) -> None:
    decision, *_ = audited(alpha).archives[0].decisions
    assert (decision.before, decision.signed) == ("", BY_COMMAND)
    changed = replace(decision, status="expired", by="mailboxd", before="approved by root at T", note="the task ended")
    assert "acts: approved by root at T, then expired by mailboxd, " in decided(changed)
    assert "(the task ended)" in decided(changed)


def test_a_file_of_several_keys_and_a_private_key_are_refused(alpha: Archive, tmp_path: Path) -> None:
    many, secret, odd = tmp_path / "many", tmp_path / "secret", tmp_path / "odd"
    many.write_text(f"{KEY.public}\n{BETA.public}\n")
    secret.write_text(KEY.file_text())
    odd.write_text(f"\ufeff{KEY.public}\r\n")
    assert "2 lines" in run(alpha.root, "--key", many).stderr
    for value in (secret, KEY.file_text().strip()):
        told = run(alpha.root, "--key", value)
        assert "private key" in told.stderr
        assert KEY.file_text().strip() not in told.output
    assert run(alpha.root, "--key", odd).exit_code == 0


def test_one_archive_twice_and_a_journal_alone_are_refused(alpha: Archive) -> None:
    assert "given twice" in run(alpha.root, alpha.root).stderr
    assert "name the directory above it" in run(alpha.root / "mailbox" / "archive" / "events").stderr


def test_a_time_that_goes_back_is_named(days: Archive) -> None:
    line = next(n for n, said in enumerate(days.lines(0)) if n > 5 and said.get("kind") == "message.filed")

    def change(lines: list[Said]) -> None:
        lines[line]["at"] = lines[line]["data"]["at"] = "2026-02-01T00:00:00.000Z"
        rehash(lines)

    days.edit(change, 0)
    assert ("back", f"archive/events/2026-03-01.jsonl line {line + 1}") in found(audited(days))


def test_a_clock_that_was_set_back_while_no_daemon_ran_is_on_record_and_not_wrong(days: Archive) -> None:
    for at in ("2026-03-02T20:00:00.000Z", "2026-03-04T08:00:00.000Z"):
        continued(days, at)
        assert found(audited(days, key=KEY)) == []
    ((back, why),) = [
        (said["at"], said["data"]["why"])
        for day in range(len(days.days))
        for said in days.lines(day)
        if said.get("data", {}).get("what") == "clock"
    ]
    assert back == "2026-03-02T20:00:00.000Z"
    assert why.startswith("it is earlier than the last event")


def test_a_head_that_is_later_than_the_next_event_is_a_note(days: Archive) -> None:
    """The daemon signed when it stopped, long after its last event, and the clock was then set back."""
    last = [said["at"] for said in days.lines() if "seq" in said][-1]
    days.edit(lambda lines: lines.pop())
    days.sign(KEY, f"{last[:11]}23:00:00.000Z")
    continued(days, f"{last[:11]}22:00:00.000Z")
    (judged,) = audited(days, key=KEY).archives
    assert judged.findings == []
    line = f"archive/events/2026-03-03.jsonl line {days.line_of('head') + 1}"
    assert [note for note in judged.notes if note.startswith(line) and "was set back" in note]


def test_a_time_that_goes_back_in_what_an_earlier_version_wrote_is_a_note(alpha: Archive) -> None:
    """It recorded nothing of a clock that was set back while no daemon ran."""
    line = alpha.line_of("message.filed")

    def change(lines: list[Said]) -> None:
        lines[line - 1]["at"] = lines[line - 1]["data"]["at"] = "2026-02-01T00:00:00.000Z"
        rehash(lines)
        del lines[-1]

    alpha.edit(change)
    (judged,) = audited(alpha).archives
    assert judged.findings == []
    assert [note for note in judged.notes if note.startswith(f"{DAY} line {line}: ") and "earlier version" in note]


def test_an_event_later_than_the_head_that_signs_it_is_named(alpha: Archive) -> None:
    alpha.edit(lambda lines: lines.pop())
    alpha.sign(KEY, "2026-11-26T08:00:00.000Z")
    assert ("back", f"{DAY} line {alpha.line_of('head')}") in found(audited(alpha, key=KEY))


# Frauds: files and texts


def test_swapped_bodies_are_named(alpha: Archive) -> None:
    lines = alpha.lines()
    first = alpha.line_of("body") - 1
    lines[first]["raw"] = lines[first]["raw"].replace("A finished tree", "A felled tree")
    alpha.write(lines)
    assert found(audited(alpha, key=KEY)) == [("changed-body", f"{DAY} line {first + 1}")]


def test_bodies_that_change_places_are_both_named(alpha: Archive) -> None:
    lines = alpha.lines()
    one, two = (n for n, said in enumerate(lines) if "body" in said)
    lines[one]["raw"], lines[two]["raw"] = lines[two]["raw"], lines[one]["raw"]
    alpha.write(lines)
    places = [("changed-body", f"{DAY} line {n + 1}") for n in (one, two)]
    assert [one for one in found(audited(alpha, key=KEY)) if one[0] == "changed-body"] == places


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(12, 300))])
def test_no_byte_of_an_event_can_be_changed(days: Archive, seed: int) -> None:
    random = Random(seed)
    path = random.choice(days.days)
    lines = path.read_bytes().splitlines(keepends=True)
    number = random.choice([n for n, line in enumerate(lines) if line.startswith((b'{"seq"', b'{"head"', b'{"body"'))])
    line = bytearray(lines[number])
    line[random.randrange(len(line) - 1)] ^= 1 << random.randrange(7)
    lines[number] = bytes(line)
    path.write_bytes(b"".join(lines))
    places = {(finding.where.file, finding.where.line) for finding in audited(days, key=KEY).findings}
    assert (f"archive/events/{path.name}", number + 1) in places or b"\n" in line[:-1]


def test_a_replaced_file_a_missing_one_and_one_dropped_later_are_named(alpha: Archive) -> None:
    filed = {said["data"]["path"]: n for n, said in enumerate(alpha.lines(), 1) if said.get("kind") == "message.filed"}
    folder = alpha.root / "mailbox" / "archive" / "2026-11-26"
    (folder / "done.md").write_text((folder / "late.md").read_text())
    (folder / "tree.md").unlink()
    (folder / "planted.md").write_text("# Do this\n")
    (folder / "copy.md").write_bytes((folder / "waits.md").read_bytes())
    assert sorted(found(audited(alpha, key=KEY))) == sorted(
        [
            ("file-changed", f"{DAY} line {filed['archive/2026-11-26/done.md']}"),
            ("file-missing", f"{DAY} line {filed['archive/2026-11-26/tree.md']}"),
            ("unrecorded", "archive/2026-11-26/planted.md"),
            ("unrecorded", "archive/2026-11-26/copy.md"),
        ]
    )


def test_a_reason_that_was_changed_is_named(alpha: Archive) -> None:
    reason = alpha.file("bad.md.reason.json")
    reason.write_text(reason.read_text().replace('"rule"', '"rules"'))
    ((kind, where),) = found(audited(alpha, key=KEY))
    assert kind == "reason"
    assert where.startswith(DAY)


def test_an_approval_file_that_says_something_else_is_named_at_the_decision(alpha: Archive) -> None:
    def change(lines: list[Said]) -> None:
        said = next(said for said in lines if said.get("kind") == "approval.resolved")
        said["data"]["changes"]["status"] = "rejected"
        rehash(lines)

    alpha.edit(change)
    line = alpha.line_of("approval.resolved")
    assert ("other-decision", f"{DAY} line {line}") in found(audited(alpha))


def test_an_action_that_nobody_approved_is_named(alpha: Archive) -> None:
    def change(lines: list[Said]) -> None:
        said = next(said for said in lines if said.get("kind") == "action.started")
        said["data"]["approval"] = [said for said in lines if said.get("kind") == "approval.requested"][1]["data"][
            "approval"
        ]["id"]
        rehash(lines)

    alpha.edit(change)
    kinds = {kind for kind, _ in found(audited(alpha))}
    assert kinds & {"not-approved", "no-request"}


def test_another_action_than_its_digest_says_is_named(alpha: Archive) -> None:
    def change(lines: list[Said]) -> None:
        said = next(said for said in lines if said.get("kind") == "approval.requested")
        said["data"]["approval"]["action"]["argv"] = ["rm", "-r", "."]
        rehash(lines)

    alpha.edit(change)
    assert ("digest", f"{DAY} line {alpha.line_of('approval.requested')}") in found(audited(alpha))


def test_a_result_that_was_rewritten_is_named(alpha: Archive) -> None:
    def change(lines: list[Said]) -> None:
        said = next(said for said in lines if said.get("kind") == "attempt.ended" and said["data"].get("artifacts"))
        said["data"]["artifacts"][0]["body"] += " And more."
        rehash(lines)

    alpha.edit(change)
    assert "artifact" in {kind for kind, _ in found(audited(alpha))}


def test_a_phase_that_no_rule_leads_to_is_named(alpha: Archive) -> None:
    def change(lines: list[Said]) -> None:
        said = next(said for said in lines if said.get("kind") == "attempt.ended")
        said["data"]["passed"] = [said["data"]["passed"][0] | {"to": "completed"}]
        rehash(lines)

    alpha.edit(change)
    assert ("phase", f"{DAY} line {alpha.line_of('attempt.ended')}") in found(audited(alpha))


def test_another_note_than_the_approval_file_has_is_named(alpha: Archive) -> None:
    def change(lines: list[Said]) -> None:
        said = next(said for said in lines if said.get("kind") == "approval.resolved")
        said["data"]["changes"]["note"] = "Read by nobody"
        rehash(lines)

    alpha.edit(change)
    assert ("other-note", f"{DAY} line {alpha.line_of('approval.resolved')}") in found(audited(alpha))


@pytest.mark.parametrize(
    "note",
    ["", "ok", "## A\n\nb\n\n## A\n# C\n---\nd", "a\x00b\x1b[1m", "```\n## x\n```", "Grüße\u2028x", "From me\n>From"],
)
def test_a_note_is_that_of_the_file_that_was_written_of_it(note: str) -> None:
    said = {"task_id": "a", "from": "operator", "approval_id": "apr_1", "decision": "approved", "preamble": note}
    raw = render_message(
        ApprovalMessage.model_validate(said | {"message_id": "msg_1", "sent_at": "2026-11-26T21:06:29.806Z"})
    )
    text = parse_message(raw, "x", max_bytes=1 << 20).message.text
    assert says_the_same(note, text)
    assert not says_the_same(f"{note} not", text)


def test_an_action_is_shown_as_what_its_digest_covers(alpha: Archive) -> None:
    def change(lines: list[Said]) -> None:
        said = next(said for said in lines if said.get("kind") == "approval.requested")
        said["data"]["approval"]["requested_action"] = "read a file"
        rehash(lines)

    assert "other-words" not in dict(found(audited(alpha)))
    alpha.edit(change)
    assert "touch" in audited(alpha).archives[0].decisions[0].action
    with_policy(alpha, ["root"])
    lines = alpha.lines()
    config = next(n for n, said in enumerate(lines) if said.get("kind") == "config.changed")
    request = next(n for n, said in enumerate(lines) if said.get("kind") == "approval.requested")
    lines.insert(request, lines.pop(config))
    for seq, said in enumerate((said for said in lines if "seq" in said), 1):
        said["seq"] = seq
    rehash([said for said in lines if "head" not in said])
    alpha.write(lines)
    assert ("other-words", f"{DAY} line {request + 2}") in found(audited(alpha))


# Frauds: two archives


def test_a_message_that_was_changed_on_both_sides_of_one_archive_disagrees_with_the_other(
    alpha: Archive, beta: Archive
) -> None:
    """beta's archive is rewritten without a fault, and says that something else came."""
    file = beta.file("done.a-*.md")
    file.write_text(file.read_text().replace("Part A", "Part B"))
    raw = file.read_bytes()

    def change(lines: list[Said]) -> None:
        for said in lines:
            if said.get("kind") == "message.received":
                said["data"]["message"] |= {"sha256": hashlib.sha256(raw).hexdigest(), "size": len(raw)}
        rehash(lines)
        del lines[-1]

    beta.edit(change)
    assert found(audited(beta)) == []
    assert found(audited(alpha, beta)) == [("differs", f"{DAY} line {beta.line_of('message.received')}")]


def test_the_end_of_one_archive_that_was_cut_off_shows_by_the_other(alpha: Archive, beta: Archive) -> None:
    sent = beta.line_of("message.sent") - 1
    beta.edit(lambda lines: lines.__delitem__(slice(sent, None)))
    shutil.rmtree(beta.root / "mailbox" / "outbox" / "2026-11-26")
    assert found(audited(beta)) == []
    came = next(
        n for n, said in enumerate(alpha.lines(), 1) if "message.received" in said.values() and said["actor"] == "beta"
    )
    assert found(audited(alpha, beta)) == [("sent-after-end", f"{DAY} line {came}")]


def test_what_a_running_daemon_writes_while_the_archives_are_read_is_not_missing(
    alpha: Archive, beta: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """beta is read first, and goes on before alpha is read."""
    lines = beta.lines()
    sent = beta.line_of("message.sent") - 1
    beta.write(lines[:sent])
    read = reading.listing

    def and_beta_goes_on(source: reading.Source) -> reading.Listing:
        found = read(source)
        if source.root == alpha.root:
            beta.write(lines)
        return found

    monkeypatch.setattr(reading, "listing", and_beta_goes_on)
    outbox = beta.root / "mailbox" / "outbox" / "2026-11-26"
    outbox.rename(beta.root / "later")
    assert found(audited(beta, alpha)) == []


def test_two_archives_of_one_agent_that_differ_are_named_at_the_first_event(days: Archive, tmp_path: Path) -> None:
    other = copy(days, tmp_path / "copy")

    def change(lines: list[Said]) -> None:
        lines[1]["actor"] = "mallory"
        rehash(lines)

    other.edit(change, 0)
    for name in range(1, 3):
        other.days[-1].unlink()
        del name
    assert ("other-history", "archive/events/2026-03-01.jsonl line 2") in found(audited(days, other))


def test_two_agents_of_one_name_are_not_one_history(days: Archive, tmp_path: Path) -> None:
    other = days_of_work(tmp_path / "other", 1, BETA, seed=2)
    for archive in (days, other):
        for day in range(len(archive.days)):
            archive.edit(lambda lines, of=archive: lines[0].update(database=of.root.name), day)  # type: ignore[misc]
    report = audited(days, other)
    assert [kind for kind, _ in found(report) if kind == "other-history"] == []
    assert [note for note in report.archives[1].notes if "two agents of one name" in note]


def test_an_archive_of_an_unknown_agent_is_named_as_not_compared(alpha: Archive, tmp_path: Path) -> None:
    other = Archive(tmp_path / "other")
    (folder := other.root / "archive" / "events").mkdir(parents=True)
    (folder / "2026-11-26.jsonl").write_text(alpha.days[0].read_text().partition("\n")[0] + "\n")
    _, unknown = audited(alpha, other).archives
    assert [note for note in unknown.notes if "was not compared with the others" in note]


def test_the_agent_is_that_of_the_configuration(tmp_path: Path) -> None:
    record = Record()
    record.configured(1, Place("x", 1), {"changes": {"agent": {"old": None, "new": "beta"}}})
    assert record.configured_agent == "beta"


def test_the_journal_of_a_replaced_log_is_judged_by_its_path(alpha: Archive, tmp_path: Path) -> None:
    archive = alpha.root / "mailbox" / "archive"
    replaced = archive / "events.replaced-20261127T000000Z"
    shutil.copytree(alpha.events, replaced)
    assert any("audit it by itself, by this path" in note for note in audited(alpha, key=KEY).archives[0].notes)
    (judged,) = audited(replaced, key=KEY).archives
    assert (judged.findings, judged.form) == ([], "the journal of a replaced log")
    assert 0 < judged.proven_to == judged.events
    path = replaced / alpha.days[0].name
    path.write_text(path.read_text().replace('"actor":"root"', '"actor":"mallory"'))
    assert ("changed", f"archive/{replaced.name}/{path.name}") in {
        (kind, where.partition(" line")[0]) for kind, where in found(audited(replaced, key=KEY))
    }


def test_a_file_that_only_an_unprotected_line_excuses_is_told_and_an_old_one_is_a_finding(alpha: Archive) -> None:
    name = "210000-000.reply.beta.x.msg_01M8CTWSSE59GZVVXKDPC8M1FZ.md"
    outbox = alpha.root / "mailbox" / "outbox"
    row = {"id": "zz", "state": "pending", "data": '{"message_id":"msg_01M8CTWSSE59GZVVXKDPC8M1FZ"}', "rev": 10**6}
    alpha.edit(lambda lines: lines.append({"table": "outbox", "row": row}))
    (outbox / "2026-11-26" / name).write_text("x")
    (judged,) = audited(alpha, key=KEY).archives
    assert judged.findings == []
    assert [note for note in judged.notes if note.startswith(f"outbox/2026-11-26/{name}: no event")]
    (outbox / "2026-11-02").mkdir()
    (outbox / "2026-11-26" / name).rename(outbox / "2026-11-02" / name)
    assert found(audited(alpha, key=KEY)) == [("unrecorded", f"outbox/2026-11-02/{name}")]


# Hostile archives


def test_nothing_hostile_ends_the_audit(alpha: Archive) -> None:
    folder = alpha.root / "mailbox" / "archive" / "2026-11-26"
    os.mkfifo(folder / "pipe.md")
    (folder / "link.md").symlink_to("/etc/passwd")
    (folder / "done.md").unlink()
    (folder / "done.md").symlink_to("/etc/passwd")
    (alpha.events / "2026-11-27.jsonl").symlink_to("/dev/zero")
    os.mkfifo(alpha.events / "2026-11-28.jsonl")
    (folder / "a\x1b[31m\n.md").write_text("x")
    with alpha.days[0].open("ab") as file:
        file.write(b"[" * 200_000 + b"\n")
        file.write(b'{"seq":' + b"9" * 5_000 + b"}\n")
        file.write(b'{"seq":5,"at":1}\n\x00\x00\n{}\n{"head":5}\n{"body":5}\n{"table":"x","row":[]}\n{"format":1}\n')
        file.write(b'{"prompt":"\\ud800","text":"\\ud800"}\n"text"\n' + b"\xff\xfe\n")
    report = audited(alpha, key=KEY)
    wheres = {where for _, where in found(report)}
    assert {"archive/2026-11-26/pipe.md", "archive/2026-11-26/link.md", "archive/events/2026-11-27.jsonl"} <= wheres
    lines = len(alpha.days[0].read_bytes().splitlines())
    assert len([where for where in wheres if where.startswith(f"{DAY} line ")]) >= 10, lines


@pytest.mark.parametrize(
    "said",
    [
        {"seq": 2**70, "at": "", "kind": "", "task": None, "role": "", "actor": "", "data": {}, "hash": "0" * 64},
        {"seq": 10**15, "at": "", "kind": "", "task": None, "role": "", "actor": "", "data": {}, "hash": "0" * 64},
        {"format": "mailboxd-journal-1", "database": "", "after": [10**15, "0" * 64, 0, 0]},
        {"format": "mailboxd-journal-9", "database": 5, "after": None},
        {
            "seq": 1,
            "at": "x",
            "kind": "task.created",
            "task": "t",
            "role": "?",
            "actor": "",
            "data": {"v": 9},
            "hash": "0" * 64,
        },
    ],
)
def test_a_line_with_any_values_is_a_finding(tmp_path: Path, said: Said) -> None:
    folder = tmp_path / "archive" / "events"
    folder.mkdir(parents=True)
    (folder / "2026-11-26.jsonl").write_text(json.dumps(said) + "\n")
    assert audited(tmp_path / "archive").findings


# The command


def public(folder: Path, name: str, key: PrivateKey) -> Path:
    """The file of a public key."""
    path = folder / f"{name}.pub"
    path.write_text(f"{key.public}\n")
    return path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(program, ["audit", *map(str, words)], obj=Session())


def test_the_command_says_the_verdict_first_and_needs_no_workspace(
    alpha: Archive, beta: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = ("--key", f"alpha={public(tmp_path, 'alpha', KEY)}", "--key", f"beta={BETA.public}")
    done = run(alpha.root, beta.root, *keys, "--html", "report.html")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (
        0,
        "proven: a key that you gave has signed all of it, and everything matches",
    )
    page = (tmp_path / "report.html").read_text()
    assert ("<script" in page, 'class="verdict proven"' in page, "touch &#34;done.txt&#34;" in page) == (
        False,
        True,
        True,
    )
    again = run(alpha.root, "--html", "report.html")
    assert again.exit_code != 0
    assert (tmp_path / "report.html").read_text() == page


def test_the_command_ends_with_1_and_folds_many_of_one_kind(alpha: Archive) -> None:
    folder = alpha.root / "mailbox" / "archive" / "2026-11-26"
    for number in range(40):
        (folder / f"planted{number:02}.md").write_text("\x1b[31mred")
    (folder / "\x1b[31mred.md").write_text("x")
    done = run(alpha.root)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (1, "wrong: something does not match (41 findings)")
    assert done.stdout.count("planted") == 4
    assert "[and 36 more of this kind: --json has all]" in done.stdout
    assert "\x1b" not in done.stdout
    assert len(json.loads(run(alpha.root, "--json").stdout)["archives"][0]["findings"]) == 41
    assert run(alpha.root, "--head", "x").exit_code == 2
    assert run().exit_code == 2


def test_a_pipe_that_nobody_writes_to_is_no_key(alpha: Archive, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe" in run(alpha.root, "--key", tmp_path / "pipe").stderr


def test_long_lines_are_wrapped_below_their_entry() -> None:
    text = list(wrapped(["", "  wrong       one two three four five six seven"], 30))
    assert text == ["", "  wrong       one two three", "              four five six", "              seven"]


def test_nothing_in_an_archive_is_changed(alpha: Archive) -> None:
    before = {path: path.lstat() for path in alpha.root.rglob("*")}
    run(alpha.root)
    assert {path: path.lstat().st_mtime_ns for path in alpha.root.rglob("*")} == {
        path: status.st_mtime_ns for path, status in before.items()
    }


# The policy at the time of a decision


def with_policy(alpha: Archive, approvers: list[str], names: int | None = None) -> None:
    """As if a daemon had recorded its configuration right before the decision."""

    def change(lines: list[Said]) -> None:
        place = next(n for n, said in enumerate(lines) if said.get("kind") == "approval.resolved")
        decided = lines[place]
        changes = {"approvals.approvers": {"old": None, "new": approvers}}
        data = {"at": decided["at"], "by": "daemon", "changes": changes, "first": True, "v": 2}
        event = {"seq": 0, "at": decided["at"], "kind": "config.changed", "task": None}
        event |= {"role": "orchestrator", "actor": "mailboxd", "data": data, "hash": ""}
        lines.insert(place, event)
        decided["data"]["policy"] = decided["seq"] if names is None else names
        for said in lines[place:]:
            if "seq" in said:
                said["seq"] = decided["seq"] if said is event else said["seq"] + 1
        rehash([said for said in lines if "head" not in said])
        del lines[-1]

    alpha.edit(change)


def test_whoever_decided_was_an_approver_by_the_policy_of_then(alpha: Archive) -> None:
    with_policy(alpha, ["root"])
    assert found(audited(alpha)) == []


def test_whoever_decided_and_was_no_approver_then_is_named(alpha: Archive) -> None:
    with_policy(alpha, ["ann"])
    assert found(audited(alpha)) == [("no-approver", f"{DAY} line {alpha.line_of('approval.resolved')}")]


def test_a_decision_by_a_policy_that_nobody_recorded_is_named(alpha: Archive) -> None:
    with_policy(alpha, ["root"], 7)
    assert ("no-policy", f"{DAY} line {alpha.line_of('approval.resolved')}") in found(audited(alpha))


def test_what_daemons_have_left_has_no_findings(worked: Path) -> None:
    assert found(audited(worked / "ws" / "alpha")) == []
