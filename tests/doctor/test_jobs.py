"""Lines of units and of the crontab that call a command that is gone are found, and printed with the new one."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from mailboxd.cli.program import program
from mailboxd.operate.doctor import diagnose, jobs
from mailboxd.operate.doctor.facts import Job
from tests.doctor.facts import but
from tests.doctor.test_probes import executable


@pytest.mark.parametrize(
    ("line", "now"),
    [
        ("mailboxd approval list --json", "mailboxd approve --json"),
        ("mailboxd approval list --all", "mailboxd approve --history"),
        ("mailboxd approval list --task q3", "mailboxd approve --history --task q3"),
        ("mailboxd approval show 3f9k2q", "mailboxd show 3f9k2q"),
        ("mailboxd approval reject 3f9k2q --note no --now", "mailboxd reject 3f9k2q --note no --now"),
        ("mailboxd approval request-changes 3f9k2q --note x", "mailboxd ask-changes 3f9k2q --note x"),
        ("mailboxd approval undo 3f9k2q", "mailboxd undo --action 3f9k2q"),
        ("mailboxd accept q3 --note fine", "mailboxd resolve --done q3 --note fine"),
        ("mailboxd -w /srv/a fail q3 --now", "mailboxd -w /srv/a resolve --failed q3 --now"),
        ("/m/mailboxd --json --workspace=/srv/a tree q3", "/m/mailboxd --json --workspace=/srv/a show --tree q3"),
        ("mailboxd explain circuit", "mailboxd doctor circuit"),
        ("mailboxd explain", "mailboxd doctor --names"),
        ("mailboxd check brief.md", "mailboxd send --check brief.md"),
        ('cd a && "mailboxd" -w "/my a" tree q3 | mail ann', 'cd a && "mailboxd" -w "/my a" show --tree q3 | mail ann'),
    ],
)  # fmt: skip
def test_the_new_line_does_what_the_old_one_did(line: str, now: str) -> None:
    assert jobs.renewed(line) == now
    words = shlex.split(now.partition(" | ")[0].rpartition(" && ")[2])
    with program.make_context("mailboxd", words[1:]) as ctx:
        name, command, rest = program.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        assert name is not None
        assert command is not None
        with command.make_context(name, rest, parent=ctx):
            pass


@pytest.mark.parametrize(
    "line",
    [
        "mailboxd -w /srv/a run", "mailboxd approve 3f9k2q", "mailboxd show tree", "my-mailboxd tree q3",
        "mailboxd send accept", "mailboxd resolve --done q3", "echo mailboxd", "mailboxd show q3 --tree",
    ],
)  # fmt: skip
def test_what_works_is_left_alone(line: str) -> None:
    assert jobs.renewed(line) == line


def test_units_drop_ins_and_the_crontab_are_read(tmp_path: Path) -> None:
    units = tmp_path / "config" / "systemd" / "user"
    (units / "night.service.d").mkdir(parents=True)
    (units / "night.service").write_text(
        "[Unit]\nDescription=mailboxd tree q3\n[Service]\n# ExecStart=mailboxd tree q3\n"
        "ExecStart=-/usr/bin/mailboxd \\\n    -w /srv/a tree q3\n"
    )
    (units / "night.service.d" / "more.conf").write_text("[Service]\nExecStartPost=/bin/sh -c 'mailboxd fail q3'\n")
    (units / "broken.service").symlink_to(tmp_path / "nowhere")
    (units / "mailboxd@.service").write_text("[Service]\nExecStart=/usr/bin/env mailboxd run\n")
    crontab = "#!/bin/sh\nprintf '# mailboxd check x\\n0 7 * * * mailboxd -w /srv/a approval list | mail ann\\n'"
    executable(tmp_path / "bin" / "crontab", crontab)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    assert jobs.probe_jobs(environ) == (
        Job(str(units / "night.service"), 5, "ExecStart=-/usr/bin/mailboxd -w /srv/a tree q3"),
        Job(str(units / "night.service.d" / "more.conf"), 2, "ExecStartPost=/bin/sh -c 'mailboxd fail q3'"),
        Job(jobs.CRONTAB, 2, "0 7 * * * mailboxd -w /srv/a approval list | mail ann"),
    )


@pytest.mark.parametrize("answer", ["exit 1", "printf '\\377\\n'; exit 0", "kill -9 $$", None])
def test_without_units_or_a_crontab_there_is_nothing(tmp_path: Path, answer: str | None) -> None:
    if answer is not None:
        executable(tmp_path / "bin" / "crontab", f"#!/bin/sh\n{answer}\n")
    assert jobs.probe_jobs({"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}"}) == ()


def test_the_finding_names_the_line_and_the_new_command() -> None:
    found = (
        Job("/h/night.service", 5, "ExecStart=mailboxd tree q3"),
        Job(jobs.CRONTAB, 2, "0 7 * * * mailboxd explain"),
    )
    results = [result for _, result in diagnose.judge(but(jobs=found)) if result.id == "removed-command"]
    assert [result.level for result in results] == ["warning", "warning"]
    assert "/h/night.service, line 5, calls `mailboxd tree`, which does not exist any more" in results[0].text
    assert results[0].fixes == ("${EDITOR:-vi} /h/night.service  # line 5: ExecStart=mailboxd show --tree q3",)
    assert results[1].fixes == ("crontab -e  # line 2: 0 7 * * * mailboxd doctor --names",)


def test_no_removed_command_exists() -> None:
    words = {words.split()[0] for words in jobs.REMOVED}
    assert not words & set(program.list_commands(click.Context(program)))
