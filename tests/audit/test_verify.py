"""`mailboxd db verify` names each manipulation of the evidence and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mailboxd.errors import EXIT_TRY_AGAIN
from mailboxd.formats.keys import Keyring, PublicKey
from tests.audit.conftest import audited
from tests.audit.frauds import rewrite
from tests.e2e.support import Agent, eventually, task
from tests.e2e.witness import digest


def verify(alpha: Agent, *words: str) -> dict[str, Any]:
    done = alpha.call("db", "verify", "--json", *words)
    said: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if said["holds"] else 1), done.stderr
    return said


def tampered(alpha: Agent, *statements: str) -> None:
    """Manipulate the database: triggers off, any statement, triggers on."""
    with closing(sqlite3.connect(alpha.root / ".mailboxd" / "mailboxd.db")) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement)
        for _, sql in triggers:
            db.execute(sql)
        db.commit()


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.rglob(pattern)
    return found


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def mailbox(alpha: Agent, *names: str) -> Path:
    return alpha.root.joinpath("mailbox", *names)


# What is done to it, and what is said


def a_byte_of_an_archived_file(alpha: Agent) -> None:
    flip(only(mailbox(alpha, "archive"), "two.md"))


def an_archived_file_is_gone(alpha: Agent) -> None:
    only(mailbox(alpha, "archive"), "one.md").unlink()


def an_archived_file_is_a_link(alpha: Agent) -> None:
    path = only(mailbox(alpha, "archive"), "one.md")
    path.rename(alpha.root / "elsewhere.md")
    path.symlink_to(alpha.root / "elsewhere.md")


def a_file_that_nobody_recorded(alpha: Agent) -> None:
    only(mailbox(alpha, "archive"), "one.md").with_name("planted.md").write_text(task("planted"))


def a_byte_of_a_rejected_file(alpha: Agent) -> None:
    flip(only(mailbox(alpha, "rejected"), "bad.md"))


def another_reason(alpha: Agent) -> None:
    path = only(mailbox(alpha, "rejected"), "bad.md.reason.json")
    path.write_text(path.read_text().replace("unknown-type", "bad-id"))


def no_reason(alpha: Agent) -> None:
    only(mailbox(alpha, "rejected"), "bad.md.reason.json").unlink()


def a_sent_message_is_gone(alpha: Agent) -> None:
    only(mailbox(alpha, "outbox"), "*.reply.*.one.*.md").unlink()


def a_message_that_was_never_sent(alpha: Agent) -> None:
    mailbox(alpha, "outbox", "forged.md").write_text(task("forged"))


def the_last_events_are_dropped(alpha: Agent) -> None:
    tampered(alpha, "DELETE FROM events WHERE seq > (SELECT max(seq) - 3 FROM v_events)")


def an_event_in_the_middle_is_dropped(alpha: Agent) -> None:
    tampered(alpha, "DELETE FROM events WHERE seq = 10")


def an_event_says_something_else(alpha: Agent) -> None:
    tampered(alpha, "UPDATE events SET actor = 'mallory' WHERE seq = 12")


def a_row_is_changed(alpha: Agent) -> None:
    tampered(alpha, "UPDATE tasks SET result = 'Everything is fine.' WHERE local_id = 'one'")


def a_row_is_added(alpha: Agent) -> None:
    tampered(alpha, "INSERT INTO dependencies SELECT a.id, b.id FROM v_tasks a, v_tasks b LIMIT 1")


def kept_bytes_are_changed(alpha: Agent) -> None:
    tampered(alpha, "UPDATE bodies SET raw = x'00' WHERE message = (SELECT min(message) FROM v_bodies)")


def kept_bytes_are_of_no_message(alpha: Agent) -> None:
    tampered(alpha, "UPDATE bodies SET message = 'msg_elsewhere' WHERE message = (SELECT min(message) FROM v_bodies)")


def a_kept_prompt_is_changed(alpha: Agent) -> None:
    tampered(alpha, "UPDATE prompts SET text = x'00' WHERE rev = (SELECT min(rev) FROM prompts)")


def a_kept_prompt_is_gone(alpha: Agent) -> None:
    tampered(alpha, "DELETE FROM prompts WHERE rev = (SELECT min(rev) FROM prompts)")


def _appended(alpha: Agent, kind: str, data: Mapping[str, object]) -> None:
    """An event with the hash that it must have."""
    with closing(sqlite3.connect(alpha.root / ".mailboxd" / "mailboxd.db")) as db:
        seq, before = db.execute("SELECT seq, hash FROM v_events ORDER BY seq DESC LIMIT 1").fetchone()
        (task_id,) = db.execute("SELECT id FROM v_tasks WHERE local_id = 'one'").fetchone()
        text = json.dumps(data, separators=(",", ":"), sort_keys=True)
        row = (seq + 1, "2026-11-21T00:00:00.000Z", kind, task_id, "operator", "mallory", text)
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, digest(before, row)))
        db.commit()


def a_forged_event(alpha: Agent) -> None:
    changes = {"at": "2026-11-21T00:00:00.000Z", "note": "", "changes": {"result": "Mine."}}
    _appended(alpha, "task.amended", changes)


def an_event_of_no_kind(alpha: Agent) -> None:
    _appended(alpha, "task.blessed", {})


def the_log_is_written_anew(alpha: Agent) -> None:
    """All hashes fit again, and so do the tables: only the journal knows."""
    with closing(sqlite3.connect(alpha.root / ".mailboxd" / "mailboxd.db")) as db:
        rows = [list(row) for row in db.execute("SELECT * FROM v_events ORDER BY seq")]
    before, statements = "0" * 64, []
    for row in rows:
        row[5] = "mallory" if row[0] == 12 else row[5]
        before = digest(before, row[:7])
        statements.append(f"UPDATE events SET actor = '{row[5]}', hash = '{before}' WHERE seq = {row[0]}")
    tampered(alpha, *statements)


def _a_page_is_damaged(alpha: Agent, name: str) -> None:
    """The root page of this table or index, as a failing disk leaves it."""
    path = alpha.root / ".mailboxd" / "mailboxd.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    raw = bytearray(path.read_bytes())
    raw[(page - 1) * size : page * size] = b"\xa5" * size
    path.write_bytes(raw)


def a_page_of_an_index_is_damaged(alpha: Agent) -> None:
    _a_page_is_damaged(alpha, "reviews_by_task")


def a_page_of_the_events_is_damaged(alpha: Agent) -> None:
    _a_page_is_damaged(alpha, "events")


def journal(alpha: Agent) -> Path:
    (file,) = (alpha.root / "mailbox" / "archive" / "events").glob("*.jsonl")
    return file


def the_journal_is_cut(alpha: Agent) -> None:
    lines = journal(alpha).read_bytes().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if line.startswith(b'{"seq":'))
    journal(alpha).write_bytes(b"".join(lines[:last]))


def a_line_of_the_journal_is_gone(alpha: Agent) -> None:
    lines = journal(alpha).read_bytes().splitlines(keepends=True)
    journal(alpha).write_bytes(b"".join(line for line in lines if not line.startswith(b'{"seq":7,')))


def a_line_of_the_journal_is_changed(alpha: Agent) -> None:
    journal(alpha).write_text(journal(alpha).read_text().replace('"actor":"operator"', '"actor":"mallory"', 1))


def a_hash_in_the_journal_is_changed(alpha: Agent) -> None:
    journal(alpha).write_text(re.sub('"hash":"[0-9a-f]{4}', '"hash":"0000', journal(alpha).read_text(), count=1))


def the_line_of_a_prompt_is_changed(alpha: Agent) -> None:
    path = journal(alpha)
    lines = path.read_text().splitlines(keepends=True)
    changed = [line.replace("Find the figures", "Lose the figures") if '{"prompt"' in line else line for line in lines]
    assert changed != lines
    path.write_text("".join(changed))


TAMPERINGS: dict[Callable[[Agent], None], tuple[str, str]] = {
    a_page_of_an_index_is_damaged: ("pages", "mailboxd.db"),
    a_page_of_the_events_is_damaged: ("pages", "mailboxd.db"),
    a_byte_of_an_archived_file: ("files", "two.md"),
    an_archived_file_is_gone: ("files", "one.md"),
    an_archived_file_is_a_link: ("files", "one.md"),
    a_file_that_nobody_recorded: ("files", "planted.md"),
    a_byte_of_a_rejected_file: ("files", "/bad.md"),
    another_reason: ("files", "bad.md.reason.json"),
    no_reason: ("files", "bad.md.reason.json"),
    a_sent_message_is_gone: ("files", ".reply.operator.one."),
    a_message_that_was_never_sent: ("files", "outbox/forged.md"),
    the_last_events_are_dropped: ("journal", "events/"),
    an_event_in_the_middle_is_dropped: ("chain", "event 10"),
    an_event_says_something_else: ("chain", "event 12"),
    a_row_is_changed: ("tables", "tasks"),
    a_row_is_added: ("tables", "dependencies"),
    kept_bytes_are_changed: ("bodies", "the stored body"),
    kept_bytes_are_of_no_message: ("bodies", "the stored body of msg_elsewhere"),
    a_kept_prompt_is_changed: ("bodies", "the stored prompt"),
    a_kept_prompt_is_gone: ("bodies", "the prompt of event"),
    the_line_of_a_prompt_is_changed: ("journal", "events/"),
    a_forged_event: ("tables", "tasks"),
    an_event_of_no_kind: ("tables", "events"),
    the_log_is_written_anew: ("journal", "events/"),
    the_journal_is_cut: ("journal", "events"),
    a_line_of_the_journal_is_gone: ("journal", "events/"),
    a_line_of_the_journal_is_changed: ("journal", "events/"),
    a_hash_in_the_journal_is_changed: ("journal", "events/"),
}


def test_an_untouched_workspace_verifies(alpha: Agent) -> None:
    said = verify(alpha)
    assert said["holds"], said
    assert said["checked"]["files"] == said["checked"]["present"] == 6
    assert alpha.call("db", "verify").returncode == 0


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
def test_each_manipulation_is_named(alpha: Agent, tamper: Callable[[Agent], None]) -> None:
    check, where = TAMPERINGS[tamper]
    tamper(alpha)
    problem = audited(alpha)
    assert problem is not None
    assert (problem.check, where in problem.where) == (check, True), problem
    assert problem.expected
    assert problem.remedy


def test_the_command_says_it_and_ends_with_1(alpha: Agent) -> None:
    a_byte_of_an_archived_file(alpha)
    done = alpha.call("db", "verify")
    assert done.returncode == 1
    assert "two.md: it was changed" in done.stderr
    assert verify(alpha)["problem"]["check"] == "files"
    a_page_of_an_index_is_damaged(alpha)
    done = alpha.call("db", "verify")
    assert (done.returncode, "mailboxd.db: " in done.stderr) == (1, True), done.stderr
    assert verify(alpha)["problem"]["check"] == "pages"


@pytest.mark.slow
def test_an_externally_recorded_head_reveals_a_truncated_log(alpha: Agent) -> None:
    noted = alpha.call("db", "head").stdout.strip()
    assert verify(alpha, "--head", noted)["holds"]
    the_log_is_written_anew(alpha)
    shutil.rmtree(journal(alpha).parent)
    said = verify(alpha, "--head", noted)
    assert said["problem"]["where"] == "the head noted elsewhere"
    assert alpha.call("db", "verify", "--head", "nonsense").returncode == 2


@pytest.mark.slow
def test_while_the_daemon_works_nothing_is_a_false_alarm(alpha: Agent) -> None:
    alpha.start()
    for number in range(5):
        alpha.drop(f"more{number}.md", task(f"more{number}"))
        assert verify(alpha)["holds"]
    eventually(lambda: len(alpha.phases()) == 9)
    assert verify(alpha)["holds"]
    assert alpha.stop() == 0
    said = verify(alpha)
    assert said["holds"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"format":', '{"kind":"approval.resolved","format":'),
        ('"actor":', '"actor":"user:bob","actor":'),
        ('{"body":', '{"data":{},"body":'),
    ],
)
def test_a_line_with_more_than_its_own_names_is_found(alpha: Agent, old: str, new: str) -> None:
    """`jq` and people would take it for another one, or for an event with another value."""
    journal(alpha).write_text(journal(alpha).read_text().replace(old, new, 1))
    finding = audited(alpha)
    assert finding is not None
    assert finding.check == "journal"


@pytest.mark.parametrize(("line", "said"), [("body", "which event"), ("prompt", "the text of its prompt is missing")])
def test_a_text_that_was_taken_out_of_the_journal_is_missed(alpha: Agent, line: str, said: str) -> None:
    lines = journal(alpha).read_text().splitlines(keepends=True)
    journal(alpha).write_text("".join(one for one in lines if not one.startswith(f'{{"{line}"')))
    finding = audited(alpha)
    assert finding is not None
    assert (finding.check, said in finding.problem) == ("journal", True)


@pytest.mark.slow
def test_half_a_line_that_a_crash_left_is_no_line(alpha: Agent) -> None:
    with journal(alpha).open("ab") as file:
        file.write(b'{"at":"2026')
    assert verify(alpha)["holds"]
    alpha.drop("more.md", task("more"))
    alpha.run()
    assert verify(alpha)["holds"]


@dataclass(frozen=True)
class Signing:
    """An agent with a key, whose daemon has signed what it did."""

    agent: Agent
    environment: dict[str, str]
    keyring: Keyring
    public: PublicKey

    def said(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = self.agent.call(*words, "--json", env=self.environment)
        return done.returncode, json.loads(done.stdout)

    def rebuilt(self, path: Path, *words: str) -> tuple[int, dict[str, Any]]:
        return self.said("db", "rebuild", "--into", str(path), *words)

    def refused(self, path: Path, *words: str) -> str:
        """What is said when nothing is rebuilt, because a head is not signed as it claims."""
        done = self.agent.call("db", "rebuild", "--into", str(path), *words, env=self.environment)
        assert (done.returncode, path.exists()) == (EXIT_TRY_AGAIN, False), done.stderr
        return done.stderr

    def lose_key(self) -> None:
        (self.keyring.folder / self.keyring.own_file).unlink()


@pytest.fixture
def signing(alpha: Agent, tmp_path: Path) -> Signing:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    keyring = Keyring.of(alpha.root, environment)
    key = keyring.create(keyring.own_file)
    alpha.drop("more.md", "# More\n\nDo more.\n")
    alpha.run(env=environment)
    return Signing(alpha, environment, keyring, key.public)


@pytest.mark.slow
def test_with_a_key_the_head_is_signed_and_a_forged_one_is_found(signing: Signing, tmp_path: Path) -> None:
    alpha = signing.agent
    code, said = signing.said("db", "verify")
    assert (code, said["proven"]["to"]) == (0, said["checked"]["events"])
    assert alpha.call("db", "rebuild", "--replace", env=signing.environment).returncode == 0
    signature = re.findall('"signature":"(ed25519:[^"]+)"', journal(alpha).read_text())[-1]
    forged = journal(alpha).read_text().replace(signature, signature[:-8] + "AAAAAAAA")
    journal(alpha).write_text(forged)
    code, said = signing.said("db", "verify")
    assert (said["problem"]["check"], said["problem"]["problem"]) == ("heads", "its signature is invalid")
    assert re.search(r"line [0-9]+: the signature of the head of event", signing.refused(tmp_path / "x.db"))


@pytest.mark.slow
def test_a_history_written_anew_is_found_by_the_public_key_and_is_never_called_proven(
    signing: Signing, tmp_path: Path
) -> None:
    """Another name in one event, every hash and head computed again, the signatures left."""

    def another_name(event: dict[str, Any]) -> None:
        if event["kind"] == "message.received":
            event["actor"] = "mallory"

    rewrite(journal(signing.agent).parent, another_name)
    number = sum(1 for line in journal(signing.agent).open() if '"head"' in line)
    assert number
    # the private key is there; it is gone, and the public one is given, or trusted as the agent's
    assert signing.refused(tmp_path / "1.db")
    signing.lose_key()
    assert signing.refused(tmp_path / "2.db", "--key", str(signing.public))
    signing.keyring.trust("alpha", signing.public, "2026-11-21T00:00:00.000Z")
    assert signing.refused(tmp_path / "3.db")
    # without the key nobody can tell
    signing.keyring.untrust("alpha")
    code, said = signing.said("db", "rebuild", "--replace")
    assert (code, said["proven"]["to"], said["proven"]["unknown"]) == (0, 0, [signing.public.fingerprint])
    code, said = signing.said("db", "verify")
    assert (code, said["holds"], said["proven"]["to"]) == (0, True, 0)
    told = signing.agent.call("db", "verify", env=signing.environment).stdout
    assert "consistent, not proven" in told
    # and with it everybody can, also afterwards
    code, said = signing.said("db", "verify", "--key", str(signing.public))
    assert (code, said["problem"]["check"], said["proven"]["to"]) == (1, "heads", 0)
    assert re.fullmatch(r"events/[0-9-]+\.jsonl line [0-9]+", said["problem"]["where"])


@pytest.mark.slow
def test_a_lost_or_new_key_does_not_stop_a_rebuild(signing: Signing, tmp_path: Path) -> None:
    signing.lose_key()
    signing.keyring.create(signing.keyring.own_file)
    code, said = signing.rebuilt(tmp_path / "x.db")
    assert (code, said["problems"], said["proven"]["unknown"]) == (0, [], [signing.public.fingerprint])
    (pub := tmp_path / "alpha.pub").write_text(f"{signing.public}\n")
    code, said = signing.rebuilt(tmp_path / "y.db", "--key", str(pub))
    assert (code, said["proven"]["to"], said["proven"]["key"]) == (0, said["events"], signing.public.fingerprint)


@pytest.mark.slow
def test_a_quiet_restart_adds_nothing(alpha: Agent) -> None:
    alpha.run()  # notes which directories it found
    before = journal(alpha).read_bytes()
    alpha.run()
    assert journal(alpha).read_bytes() == before
