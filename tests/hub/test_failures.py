"""What may fail between hosts, and what must come of it (docs/scale.md)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import eventually, task
from tests.hub.conftest import Joined
from tests.hub.farm import Farm, Host

pytestmark = pytest.mark.slow

WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}."}}
TWO = {"alpha": {"main": WORK}, "beta": {"writer": WORK}}


def gives_to(agent: str, count: int = 1) -> dict[str, Any]:
    names = [f"x{number}" for number in range(count)]
    return {name: {"agent": agent, "description": "Work", "expected_output": "One line."} for name in names}


def until_sent(host: Host, count: int) -> None:
    """The server has stored so many messages, and no receipt is back."""
    eventually(lambda: len(host.spooled("sent")) >= count, 30, host.last_words)


def work_waits(farm: Farm, count: int = 1) -> None:
    """Work for a host whose hub process is down: the server has it."""
    farm.start()
    farm["beta"].stop_hub()
    farm["alpha"]["main"].drop("go.md", task("job", plan=gives_to("beta.writer", count)))
    until_sent(farm["alpha"], count)


def is_done_once(farm: Farm, count: int) -> None:
    farm["alpha"]["main"].until("job")
    assert len(farm["beta"].executions(agent="writer")) == count
    farm.at_rest()


def test_work_waits_for_a_host_that_is_off_and_its_time_to_reply_does_not_begin(joined: Joined) -> None:
    farm = joined(TWO)
    work_waits(farm)
    main = farm["alpha"]["main"]
    eventually(lambda: "the host beta was last heard from at" in main.call("why", "job").stdout, why=farm.last_words)
    assert main.task("job.x0")["due"] is None
    (attempt,) = main.attempts("job.x0")
    assert attempt["acknowledged"] == 0
    main.drop("local.md", task("local"))
    main.until("local")
    farm["beta"].start_hub()
    is_done_once(farm, 1)


def test_work_for_a_host_that_was_never_heard_from_is_taken_and_waits_with_a_reason(joined: Joined) -> None:
    farm = joined(TWO)
    main = farm["alpha"]["main"]
    main.start()
    farm["alpha"].start_hub()
    main.drop("go.md", task("job", plan=gives_to("beta.writer")))
    eventually(
        lambda: "does not know yet which agents the host beta has" in main.call("why", "job").stdout,
        why=lambda: main.call("why", "job").stdout + farm.last_words(),
    )
    farm["beta"]["writer"].start()
    farm["beta"].start_hub()
    is_done_once(farm, 1)


@pytest.mark.soak
def test_what_is_under_way_and_who_is_there_survive_restarts_while_the_other_host_is_off(joined: Joined) -> None:
    farm = joined(TWO)
    work_waits(farm)
    alpha, main = farm["alpha"], farm["alpha"]["main"]
    alpha.kill_hub()
    main.kill()
    alpha.start_hub()
    main.start()
    main.drop("more.md", task("more", plan=gives_to("beta.writer")))
    until_sent(alpha, 2)
    farm["beta"].start_hub()
    for name in ("job", "more"):
        main.until(name)
    assert len(farm["beta"].executions(agent="writer")) == 2
    assert not main.events("message.undelivered")
    farm.at_rest()


def test_work_waits_while_the_hub_process_is_gone_and_why_says_so(joined: Joined) -> None:
    farm = joined(TWO)
    farm.start()
    farm["alpha"].kill_hub()
    main = farm["alpha"]["main"]
    main.drop("go.md", task("job", plan=gives_to("beta.writer")))
    eventually(lambda: "the hub process is not running: mailboxd hub run" in main.call("why", "job").stdout)
    assert farm["alpha"].hub("status").returncode == 1
    farm["alpha"].start_hub()
    is_done_once(farm, 1)


@pytest.mark.soak
@pytest.mark.soak
def test_the_sender_is_told_what_its_work_waits_for_on_another_host(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}, "beta": {"writer": {"mailbox": "true", "default": {"delay": 600}}}})
    farm.start()
    main, writer = farm["alpha"]["main"], farm["beta"]["writer"]

    def why() -> str:
        return str(main.call("why", "job").stdout)

    main.drop("go.md", task("job", plan=gives_to("beta.writer")))
    writer.until("job.x0", "executing")
    writer.call("pause", "job.x0")
    eventually(lambda: "waits for a person" in why(), why=farm.last_words)
    writer.call("resume", "job.x0")
    eventually(lambda: "waits for a person" not in why(), why=farm.last_words)
    writer.kill()
    eventually(lambda: "the host beta says that" in why(), 60, why=farm.last_words)
    assert "writer" in why()


def test_the_loss_of_everything_on_the_server_loses_no_mail(joined: Joined) -> None:
    farm = joined(TWO)
    work_waits(farm, 3)
    farm.server.kill()
    shutil.rmtree(farm.server.folder / "store")
    farm.server.start()
    farm["beta"].start_hub()
    is_done_once(farm, 3)


def test_a_server_that_is_set_back_to_an_old_copy_repeats_and_loses_nothing(joined: Joined) -> None:
    farm = joined(TWO)
    work_waits(farm, 2)
    farm.server.kill()
    shutil.copytree(farm.server.folder / "store", farm.server.folder / "old")
    farm.server.start()
    farm["beta"].start_hub()
    farm["alpha"]["main"].until("job")
    farm["beta"].stop_hub()
    farm["alpha"]["main"].drop("more.md", task("more", plan=gives_to("beta.writer")))
    until_sent(farm["alpha"], 1)
    farm.server.kill()
    shutil.rmtree(farm.server.folder / "store")
    (farm.server.folder / "old").rename(farm.server.folder / "store")
    farm.server.start()
    farm["beta"].start_hub()
    farm["alpha"]["main"].until("more")
    assert len(farm["beta"].executions(agent="writer")) == 3
    assert not farm["beta"]["writer"].mail("duplicate"), "a repetition was delivered into the mailbox"
    farm.at_rest()


def test_no_receipt_is_given_before_the_daemon_has_committed(joined: Joined) -> None:
    farm = joined(TWO)
    farm.start()
    writer = farm["beta"]["writer"]
    writer.kill()
    farm["alpha"]["main"].drop("go.md", task("job", plan=gives_to("beta.writer")))
    eventually(writer.unread, why=farm.last_words)
    until_sent(farm["alpha"], 1)
    farm["beta"].kill_hub()  # it forgets that it owes a receipt; the sender asks again
    farm["beta"].start_hub()
    assert farm["alpha"].spooled("sent")
    writer.start()
    is_done_once(farm, 1)
    assert farm["alpha"].status()["counts"]["sent"] == 1, "it was asked about, and not sent again"


def test_work_that_the_other_host_refuses_fails_with_its_reason(joined: Joined) -> None:
    farm = joined(TWO, openclaw={"discovery": "false"})
    farm.start()
    main = farm["alpha"]["main"]
    main.drop("unknown.md", task("unknown", plan=gives_to("beta.nobody")))
    eventually(lambda: main.rejections() == {"unknown.md": "unknown-agent"}, why=farm.last_words)
    settings = farm["beta"].folder / "hub.yaml"
    settings.write_text(settings.read_text().replace('accept: ["*"]', "accept: [gamma.x]"))
    eventually(lambda: farm["beta"].status()["accept"] == ["gamma.x"], 20, farm.last_words)
    main.drop("go.md", task("job", plan=gives_to("beta.writer")))
    eventually(lambda: "does not let alpha.main give work" in main.task("job.x0").get("error", ""), 40, farm.last_words)
    assert farm["beta"].executions() == []
    assert any("does not let alpha.main" in why for why in farm["beta"].refused())


def test_work_that_was_cancelled_before_the_other_host_took_it_is_cancelled_there(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}, "beta": {"writer": {"mailbox": "true", "default": {"delay": 60}}}})
    work_waits(farm)
    main = farm["alpha"]["main"]
    assert main.call("cancel", "job", "--now").returncode == 0
    farm["beta"].start_hub()
    eventually(lambda: farm["beta"]["writer"].phases() == {"job.x0": "cancelled"}, 40, farm.last_words)


@pytest.mark.parametrize("hours", [30, -30])
def test_a_host_whose_clock_is_wrong_does_its_work_once_and_is_named(
    joined: Joined, tmp_path: Path, hours: int
) -> None:
    farm = joined(TWO)
    beta, main = farm["beta"], farm["alpha"]["main"]
    clock = f"import time\nhonest = time.time\ntime.time = lambda: honest() + {hours * 3600}\n"
    (tmp_path / "sitecustomize.py").write_text(clock)
    beta.env["PYTHONPATH"] = str(tmp_path)
    farm.start()
    main.drop("go.md", task("job", plan=gives_to("beta.writer", 3)))
    beta["writer"].drop("go.md", task("back", plan=gives_to("alpha.main", 3)))
    main.until("job")
    beta["writer"].until("back")
    assert len(beta.executions(agent="writer")) == len(farm["alpha"].executions(agent="main")) == 3
    skew = farm["alpha"].status()["hosts"]["beta"]["skew"]
    assert abs(skew - hours * 3600) < 60
    eventually(lambda: not (beta.spooled("sent") + farm["alpha"].spooled("sent")), 20, farm.last_words)


@pytest.mark.soak
def test_mail_for_a_workspace_that_cannot_be_read_now_waits(joined: Joined) -> None:
    farm = joined(TWO)
    farm.start()
    writer, text = farm["beta"]["writer"], farm["beta"]["writer"].config.read_text()
    writer.stop()
    writer.config.write_text("agent: [")
    farm["beta"].kill_hub()
    farm["beta"].start_hub()
    farm["alpha"]["main"].drop("go.md", task("job", plan=gives_to("beta.writer")))
    eventually(lambda: "writer may be the agent of" in farm["beta"].last_words(), 40, farm.last_words)
    writer.config.write_text(text)
    writer.start()
    is_done_once(farm, 1)


def test_a_hub_process_ends_when_its_host_has_left(joined: Joined) -> None:
    farm = joined(TWO)
    farm.start()
    beta = farm["beta"]
    beta.ordered("leave")
    assert beta.process is not None
    assert beta.process.wait(60) == 0
    assert not any((beta.folder / name).exists() for name in ("peers.json", "status.json"))


def test_mail_for_a_host_that_was_removed_fails(joined: Joined) -> None:
    farm = joined(TWO)
    work_waits(farm)
    farm["alpha"].ordered("revoke", "beta")
    main = farm["alpha"]["main"]
    eventually(lambda: "is on no host of the hub" in main.task("job.x0").get("error", ""), 40, farm.last_words)
    farm["beta"].start_hub()
    eventually(lambda: farm["beta"].status()["trouble"], 20, farm.last_words)


def test_a_stolen_key_is_seen_and_of_no_use_once_its_host_is_revoked(joined: Joined, tmp_path: Path) -> None:
    farm = joined(TWO)
    farm.start()
    alpha, beta, thief = farm["alpha"], farm["beta"], Host(tmp_path / "thief", "beta", {})
    ours = shutil.ignore_patterns("status.json", "lock", "ask", "socket")
    shutil.copytree(beta.folder, thief.folder, ignore=ours)
    thief.start_hub()
    try:
        eventually(lambda: "this is a copy of the host beta" in thief.status()["trouble"], 30, thief.last_words)
        assert "a copy of this host asked" in beta.hub("status").stdout
        alpha.ordered("revoke", "beta")
        for host in (beta, thief):
            eventually(lambda host=host: host.status()["trouble"], 30, host.last_words)  # type: ignore[misc]
        beta["writer"].drop("go.md", task("job", plan=gives_to("alpha.main")))
        alpha["main"].drop("local.md", task("local"))
        alpha["main"].until("local")
        assert beta.spooled("new")
        assert alpha["main"].phases() == {"local": "completed"}
    finally:
        thief.close()
