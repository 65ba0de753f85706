"""What lies in an inbox: slow writers, links, pipes, rubbish, floods; and files that come while nobody looks."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import MAILBOXD, Agent, Company, environment, eventually, message, reply, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}


def filed(agent: Agent, name: str) -> dict[str, object]:
    return eventually(lambda: [row for row in agent.mail() if row["name"] == name and row["path"]])[0]


def test_a_file_that_is_written_slowly_is_taken_once_and_whole(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    text = task("slow", "Slow") + "line\n" * 50
    shell = 'exec >"$1"; for i in 1 2 3 4 5 6 7 8; do head -c "$2"; sleep 0.15; done; cat'
    subprocess.run(
        ["bash", "-c", shell, "-", str(alpha.inbox / "slow.md"), "40"], input=text.encode(), check=True, bufsize=0
    )
    row = filed(alpha, "slow.md")
    assert row["verdict"] == "accepted"
    assert (alpha.root / "mailbox" / str(row["path"])).read_text() == text
    alpha.until("slow")
    company.at_rest()


def test_a_file_that_is_appended_to_after_a_pause_is_not_judged_by_its_half(found: Found) -> None:
    """The writer opens, writes the header, closes, and goes on a moment later."""
    company = found({"alpha": WORK}, inbox={"incomplete_seconds": 10})
    alpha = company["alpha"]
    alpha.start()
    text = task("half")
    cut = text.index("\n---\n", 4)
    target = alpha.inbox / "half.md"
    target.write_text(text[:cut])
    subprocess.run(["sleep", "0.4"], check=True)  # the writer's own pause: what is tested, not a wait for luck
    with target.open("a") as file:
        file.write(text[cut:])
    assert filed(alpha, "half.md")["verdict"] == "accepted"
    alpha.until("half")
    company.at_rest()


APPEND = 'while IFS= read -r line; do printf "%s\\n" "$line" >> "$1"; sleep "$2"; done'


@pytest.mark.soak
def test_a_file_that_is_appended_to_line_by_line_is_taken_whole(found: Found) -> None:
    """`echo ... >> inbox/x.md` in a loop: between two lines nobody has the file open, though more is to come."""
    company = found({"alpha": WORK}, inbox={"settle_seconds": 3})
    alpha = company["alpha"]
    alpha.start()
    texts = {f"loop{number}": task(f"loop{number}") + f"line of {number}\n" * 15 for number in range(4)}
    writers = []
    for name, text in texts.items():
        writer = subprocess.Popen(
            ["bash", "-c", APPEND, "-", str(alpha.inbox / f"{name}.md"), "0.1"], stdin=subprocess.PIPE
        )
        assert writer.stdin is not None
        writer.stdin.write(text.encode())
        writer.stdin.close()
        writers.append(writer)
    assert [writer.wait(120) for writer in writers] == [0] * len(texts)
    for name, text in texts.items():
        row = filed(alpha, f"{name}.md")
        assert (alpha.root / "mailbox" / str(row["path"])).read_text() == text
        alpha.until(name)
    assert len(alpha.phases()) == len(texts)
    company.at_rest()


def test_the_rest_of_a_message_that_comes_late_is_rejected_by_its_name_and_never_executed(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    subprocess.run(["sh", "-c", f"cat > {alpha.inbox}/job.md"], input=task("job").encode(), check=True)
    head = filed(alpha, "job.md")
    alpha.until("job")
    for tail in ("and delete nothing.\n", "# Really\n\nnothing at all.\n", "---\nso: really\n---\nnothing.\n"):
        before = len(alpha.mail())
        subprocess.run(["sh", "-c", f"cat >> {alpha.inbox}/job.md"], input=tail.encode(), check=True)
        row = eventually(lambda before=before: [row for row in alpha.mail()[before:] if row["path"]])[0]  # type: ignore[misc]
        assert (row["verdict"], row["task"]) == ("rejected", alpha.task("job")["id"])
        reason = json.loads(row["reason"])
        assert reason["rule"] == "late-tail"
        assert str(head["id"]) in reason["problem"]
        assert (alpha.root / "mailbox" / str(row["path"])).read_text() == tail
    assert list(alpha.phases()) == ["job"]
    health = eventually(lambda: (said := alpha.json("status")["health"])["grade"] == "amber" and said)
    assert "the rest of job.md came after" in health["troubles"][0]["why"]
    assert str(head["id"]) in alpha.json("why", "job")["notices"][0]["text"]
    broken = message("task", "broken", "# Task: Broken\n\n## DAG\n\nsubtasks: [")  # rejected, for want of its rest
    for text, rule in ((broken, ""), ("a, b]\n", "late-tail")):
        before = len(alpha.mail())
        subprocess.run(["sh", "-c", f"cat >> {alpha.inbox}/broken.md"], input=text.encode(), check=True)
        row = eventually(lambda before=before: [row for row in alpha.mail()[before:] if row["path"]])[0]  # type: ignore[misc]
        assert row["verdict"] == "rejected"
        assert json.loads(row["reason"])["rule"] == (rule or json.loads(row["reason"])["rule"])
    subprocess.run(["sh", "-c", f"cat > {alpha.inbox}/job.md"], input=task("other").encode(), check=True)
    alpha.until("other")  # a whole message under the same name is one
    alpha.drop("job.md", "Buy milk.\n")  # and so is a text that was renamed in
    eventually(lambda: len(alpha.phases()) == 3)
    company.at_rest()


def test_a_text_renamed_in_while_no_daemon_ran_is_told_what_helps_if_it_counts_as_a_rest(found: Found) -> None:
    """Nobody saw the rename, so to rename it once more would be no use as advice; another name is."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("todo.md", "Buy milk.\n")
    eventually(lambda: len(alpha.phases()) == 1)
    alpha.kill()
    alpha.drop("todo.md", "Buy bread.\n")
    alpha.start()
    eventually(lambda: alpha.rejections() == {"todo.md": "late-tail"})
    reason = json.loads(alpha.mail("rejected")[0]["reason"])
    assert reason["problem"].endswith("it lacks headers of a message, and was not seen being renamed in")
    assert reason["hint"].startswith("Nothing of it was read. If it is a message of its own, give it another name.")
    alpha.drop("bread.md", "Buy bread.\n")
    eventually(lambda: len(alpha.phases()) == 2)
    company.at_rest()


def test_the_index_of_the_day_lists_what_came_and_went_and_comes_back_if_it_is_lost(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("Übersicht.md", "---\npriority: 5\n---\n- [ ] Read | write\n")
    alpha.drop("bad.md", "---\ntype: gossip\n---\n")
    alpha.drop(
        "circle.md", "---\ntype: task\ntask_id: q3\nfrom: beta\n---\n# Q3\n\n## DAG\n\nsubtasks: {a: {agent: ghost}}\n"
    )
    alpha.run()
    (task_id,) = alpha.phases()
    assert task_id.startswith("ubersicht-")
    (index,) = (alpha.root / "mailbox" / "archive").glob("*/INDEX.md")
    listed = _listed(index)
    assert {cells[1:7] for cells in listed} == {
        ("operator", "alpha", "task", task_id, "accepted", ""),
        ("", "alpha", "", "", "rejected", ""),
        ("beta", "alpha", "task", "q3", "rejected", ""),
        ("alpha", "beta", "reply", "q3", "undelivered", "failed"),
        ("alpha", "operator", "reply", task_id, "sent", "done"),
    }
    for cells in listed:
        link = re.search(r"\]\((.*)\)", cells[7])
        assert link is not None
        assert (index.parent / unquote(link[1])).is_file()
    index.unlink()
    alpha.run()
    assert _listed(index) == listed
    company.at_rest()


def _listed(index: Path) -> list[tuple[str, ...]]:
    """The rows of an index of a day, the last one of each file."""
    rows = [line.split(" | ") for line in index.read_text().splitlines() if "|" in line][2:]
    return sorted({cells[-1]: tuple(cell.strip() for cell in cells) for cells in rows}.values())


@pytest.fixture
def strangers() -> Iterator[Company]:
    """A company whose daemon runs as nobody, below a directory that others may enter; pytest's own are closed."""
    if os.geteuid() != 0:
        pytest.skip("needs to become another user")
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        company = Company(root, {"alpha": WORK})
        alpha = company["alpha"]
        alpha.settle_in({"inbox": {"settle_seconds": 1.5}})
        for path in (root, *root.rglob("*")):
            os.chown(path, 65534, 65534)
        words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *MAILBOXD, "run"]
        home = environment({"HOME": made, "XDG_STATE_HOME": f"{made}/state"})
        with alpha.log.open("ab") as log:
            alpha.process = subprocess.Popen(words, cwd=alpha.root, env=home, stdout=log, stderr=log)
        alpha.until_ready()
        yield company
        company.close()


def test_a_file_of_another_user_is_not_taken_while_it_is_still_being_written(strangers: Company) -> None:
    """The kernel tells nobody else whether a file is open; only that it was quiet for a while can be known."""
    alpha = strangers["alpha"]
    text = task("foreign") + "line\n" * 30
    with (alpha.inbox / "foreign.md").open("w") as file:
        for at in range(0, len(text), 100):
            file.write(text[at : at + 100])
            file.flush()
            subprocess.run(["sleep", "1.8"], check=True)  # the writer's own pause, longer than settle_seconds
    row = filed(alpha, "foreign.md")
    assert (alpha.root / "mailbox" / str(row["path"])).read_text() == text
    assert len(alpha.mail()) == 1


def test_a_file_that_grows_after_it_was_archived_is_noticed_by_the_daemon(strangers: Company) -> None:
    """Its writer still has it open, under another name now: what he adds was never carried out."""
    alpha = strangers["alpha"]

    def troubles() -> str:  # the agent's program may be out of reach for nobody, which is another trouble
        return str(json.loads(alpha.call("status", "--json").stdout)["health"]["troubles"])

    with (alpha.inbox / "open.md").open("w") as file:
        file.write(task("open"))
        file.flush()
        row = filed(alpha, "open.md")
        file.write("and one thing more\n")
        file.flush()
        (alarm,) = eventually(lambda: alpha.events("alarm"), 20, alpha.last_words)
        assert (alarm["data"]["what"], alarm["task"]) == ("archive", alpha.task("open")["id"])
        assert str(row["path"]) in alarm["data"]["why"]
    eventually(lambda: str(row["path"]) in troubles(), 20, alpha.last_words)
    assert str(row["path"]) in alpha.call("why", "open").stdout
    # what lies there is moved away: then the bytes that were carried out are put back
    path = alpha.root / "mailbox" / str(row["path"])
    path.rename(alpha.root / "grown.md")
    eventually(path.exists, 40, alpha.last_words)
    assert path.read_text() == task("open")
    eventually(lambda: "archive" not in troubles(), 20, alpha.last_words)


def test_a_file_whose_writer_died_half_way_is_rejected_after_a_while(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    (alpha.inbox / "torn.md").write_text("---\ntype: task\ntask_id: torn\n")
    (alpha.inbox / "empty.md").write_text("")
    filed(alpha, "torn.md")
    filed(alpha, "empty.md")
    assert alpha.rejections() == {"torn.md": "unterminated", "empty.md": "empty"}
    company.at_rest()


def test_files_dropped_while_the_daemon_is_down_are_processed_when_it_starts(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("one"))
    alpha.until("one")
    assert alpha.stop() == 0
    alpha.drop("2.md", task("two"))
    subprocess.run(["cp", "/dev/stdin", str(alpha.inbox / "3.md")], input=task("three").encode(), check=True)
    alpha.start()
    alpha.until("two")
    alpha.until("three")
    company.at_rest()


def test_plain_markdown_is_a_task_from_the_operator(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("note to self.md", "# Buy milk\n\nTwo litres.\n")
    alpha.run()
    (row,) = alpha.query("SELECT * FROM v_tasks")
    assert (row["title"], row["sender"], row["phase"]) == ("Buy milk", "operator", "completed")
    company.at_rest()


def test_how_large_a_message_may_be_is_what_the_configuration_says(found: Found) -> None:
    company = found({"alpha": WORK}, limits={"message_bytes": 3_000_000})
    alpha = company["alpha"]
    alpha.drop("more.md", task("more").replace("Do more.", "x" * 2_500_000))
    alpha.drop("most.md", task("most").replace("Do most.", "x" * 3_000_000))
    alpha.run()
    assert alpha.phases() == {"more": "completed"}
    assert alpha.rejections() == {"most.md": "too-large"}
    company.at_rest()


def test_temporary_and_hidden_names_are_left_alone(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    names = (".x.tmp", "x.tmp", "x.md~", "#x.md#", "x.md.crdownload", ".x.md.swp", ".DS_Store")
    for name in names:
        (alpha.inbox / name).write_text(task("never"))
    alpha.run()
    assert sorted(os.listdir(alpha.inbox)) == sorted(names)
    assert alpha.mail() == []


def test_what_tools_that_synchronise_leave_is_no_message_and_their_copies_are_told_apart(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    unfinished = (".syncthing.go.md.tmp", "~syncthing~go.md.tmp", ".go.md.Xy12Zz", "go.md.crdownload")
    for name in unfinished:
        (alpha.inbox / name).write_text(task("unfinished"))
    (alpha.inbox / ".~tmp~").mkdir()  # rsync --delay-updates
    (alpha.inbox / ".~tmp~" / "go.md").write_text(task("unfinished"))
    alpha.drop("go.md", task("job", message_id="m-1"))
    alpha.run()
    alpha.drop("go.sync-conflict-20261122-093000-ABCDEFG.md", task("job", "Other", message_id="m-1"))
    alpha.drop("go (ann's conflicted copy 2026-11-22).md", task("job", message_id="m-1"))
    alpha.run()
    assert alpha.rejections() == {"go.sync-conflict-20261122-093000-ABCDEFG.md": "id-conflict"}
    assert sorted(row["verdict"] for row in alpha.mail()) == ["accepted", "duplicate", "rejected"]
    assert alpha.phases() == {"job": "completed"}
    assert sorted(os.listdir(alpha.inbox)) == sorted([*unfinished, ".~tmp~"])
    assert len(company.executions()) == 1


def test_what_is_no_regular_file_is_refused_without_being_opened(found: Found, tmp_path: Path) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    secret = tmp_path / "secret"
    secret.write_text(task("stolen"))
    os.mkfifo(alpha.inbox / "fifo.md")
    (alpha.inbox / "link.md").symlink_to(secret)
    (alpha.inbox / "zero.md").symlink_to("/dev/zero")
    (alpha.inbox / "loop.md").symlink_to("loop.md")
    (alpha.inbox / "dir.md").mkdir()
    (alpha.inbox / "dir.md" / "inside.md").write_text(task("inside"))
    with socket.socket(socket.AF_UNIX) as unix:
        here = os.getcwd()
        os.chdir(alpha.inbox)  # the whole path is too long for a socket's name
        try:
            unix.bind("socket.md")
        finally:
            os.chdir(here)
    alpha.drop("good.md", task("good"))
    alpha.run()
    rules = alpha.rejections()
    links = dict.fromkeys(("link.md", "zero.md", "loop.md"), "symlink")
    assert rules == links | dict.fromkeys(("fifo.md", "dir.md", "socket.md"), "not-regular")
    assert alpha.phases() == {"good": "completed"}
    (rejected,) = (alpha.root / "mailbox" / "rejected").iterdir()
    assert (rejected / "link.md").is_symlink()
    assert (rejected / "dir.md" / "inside.md").read_text() == task("inside")
    assert secret.read_text() == task("stolen")
    company.at_rest()


def test_rubbish_is_rejected_with_its_bytes_and_a_reason(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    files = {
        "binary.md": bytes(range(256)) * 40,
        "utf16.md": task("x").encode("utf-16"),
        "latin1.md": "---\ntype: task\ntask_id: x\nfrom: operator\n---\n\nÄrger\n".encode("latin-1"),
        "bomb.md": b"---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\ntype: task\n---\n",
        "deep.md": b"---\nx: " + b"[" * 30_000 + b"\n---\n",
        "twice.md": b"---\ntype: task\ntask_id: x\nfrom: a\nfrom: b\n---\n",
        "python.md": b"---\ntype: !!python/object/apply:os.system [true]\ntask_id: x\nfrom: a\n---\n",
        "path.md": b"---\ntype: task\ntask_id: ../../etc/passwd\nfrom: a\n---\n",
        "absolute.md": b"---\ntype: task\ntask_id: /etc/passwd\nfrom: a\n---\n",
        "unknown.md": b"---\ntype: telepathy\ntask_id: x\nfrom: a\n---\n",
        "missing.md": b"---\ntype: task\n---\n",
        "two.md": b"---\ntype: task\ntask_id: x\nfrom: a\n---\n...\n---\na: b\n---\n",
        "huge.md": b"---\ntype: task\ntask_id: x\nfrom: a\n---\n" + b"x" * (2 << 20),
    }
    for name, raw in files.items():
        alpha.drop(name, raw)
    with (alpha.inbox / "sparse.md").open("wb") as file:
        file.truncate(10 << 30)
    alpha.drop("good.md", task("good"))
    alpha.run()
    rules = alpha.rejections()
    del files["two.md"]  # a block in the body is no second envelope: the body is opaque
    assert set(rules) == {*files, "sparse.md"}
    assert rules["twice.md"] == "duplicate-key"
    assert rules["missing.md"] == "missing-field"
    assert rules["path.md"] == rules["absolute.md"] == "bad-id"
    assert rules["huge.md"] == rules["sparse.md"] == "too-large"
    assert rules["binary.md"] == rules["utf16.md"] == rules["latin1.md"] == "not-utf8"
    for name, raw in files.items():
        (place,) = (alpha.root / "mailbox" / "rejected").glob(f"*/{name}")
        assert place.read_bytes() == raw
        reason = json.loads((place.parent / f"{name}.reason.json").read_text())
        assert reason["rule"] == rules[name]
        assert reason["hint"]
        assert len(json.dumps(reason)) < 4096
    assert alpha.phase("good") == "completed"
    assert {path.name for path in (alpha.root / "tasks").iterdir()} <= {"good", "x"}
    company.at_rest()


def test_ids_that_yaml_would_change_are_the_strings_that_stand_there(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    ids = ("1e3", "007", "no", "2026-01-01", "0x1F", "true")
    for name in ids:
        alpha.drop(f"{name}.md", task(name))
    alpha.run()
    assert alpha.phases() == dict.fromkeys(ids, "completed")
    company.at_rest()


def test_names_that_are_hard_to_handle_are_filed_all_the_same(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    for number, name in enumerate(("ä ö.md", "x" * 252 + ".md", "-rf", "a;b$(c).md", "noextension", "%s%n.md")):
        alpha.drop(name[:240] if len(name) > 250 else name, task(f"t{number}"))
    long = "y" * 252 + ".md"
    (alpha.inbox / long).write_text(task("t7"))
    with open(os.fsencode(alpha.inbox) + b"/\xff\xfe.md", "wb") as file:
        file.write(task("t8").encode())
    (alpha.inbox / "new\nline.md").write_text(task("t9"))
    alpha.run()
    assert sorted(alpha.phases()) == [f"t{n}" for n in (*range(6), 7)]
    assert sorted(alpha.rejections().values()) == ["bad-name", "bad-name"]
    assert os.listdir(alpha.inbox) == []
    company.at_rest()


def test_a_thousand_files_at_once_are_all_archived_and_none_twice(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    for number in range(990):
        alpha.drop(f"{number:04}.md", reply(f"task{number}", "x", "beta", f"Result {number}."))
    for number in range(10):
        alpha.drop(f"real{number}.md", task(f"real{number}"))
    eventually(
        lambda: len(alpha.query("SELECT 1 FROM v_messages WHERE direction = 'in' AND path IS NOT NULL")) == 1000, 60
    )
    for number in range(10):
        alpha.until(f"real{number}")
    assert os.listdir(alpha.inbox) == []
    archive = alpha.root / "mailbox" / "archive"
    assert sum(path.name != "INDEX.md" for path in archive.rglob("*.md")) == 1000
    company.at_rest()


def test_an_inbox_that_is_renamed_and_replaced_is_watched_again(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("before"))
    alpha.until("before")
    fresh = alpha.inbox.parent / ".fresh"
    fresh.mkdir(mode=0o700)
    alpha.inbox.rename(alpha.inbox.parent / "inbox.old")
    fresh.rename(alpha.inbox)
    alpha.drop("2.md", task("after"))
    alpha.until("after", seconds=8)
    assert [event["data"]["path"] for event in alpha.events("inbox.rearmed")] == ["mailbox/inbox"]
    (alpha.inbox.parent / "inbox.old" / "3.md").write_text(task("never"))
    company.at_rest()
    assert alpha.phase("never") == ""


def test_an_inbox_that_is_gone_for_a_while_stops_nothing(found: Found) -> None:
    """The intake waits and says so; the daemon goes on, and takes what comes when the directory is back."""
    company = found({"alpha": {"default": {"delay": 1, "reply": "Text."}}}, inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("1.md", task("before"))
    eventually(lambda: alpha.phase("before") == "executing")
    away = alpha.inbox.parent / "away"
    alpha.inbox.rename(away)
    alpha.until("before", seconds=10)
    assert alpha.process is not None
    assert alpha.process.poll() is None, alpha.last_words()
    (away / "2.md").write_text(task("after"))
    away.rename(alpha.inbox)
    alpha.until("after", seconds=10)
    company.at_rest()


def test_an_archive_that_is_gone_for_a_while_loses_nothing(found: Found) -> None:
    company = found({"alpha": WORK}, inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    alpha.start()
    archive = alpha.root / "mailbox" / "archive"
    archive.rename(archive.parent / "away")
    alpha.drop("1.md", task("job"))
    eventually(lambda: "mailbox/archive" in alpha.last_words())
    assert (alpha.inbox / "1.md").exists()
    assert alpha.mail() == []  # not accepted, so not worked on
    (archive.parent / "away").rename(archive)
    alpha.until("job")
    filed(alpha, "1.md")
    company.at_rest()
