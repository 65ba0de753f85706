"""What is built is what is installed: the wheel alone, in an environment of its own, outside of the source."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.e2e.support import PATIENCE, SCRIPTED, environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120.0 * PATIENCE


def run(*argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=cwd, env=environment(env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `mailboxd` of a fresh virtual environment that holds the wheel; its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(
        sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT), cwd=folder
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = folder.glob("*.whl")
    venv = folder / "venv"
    assert run(sys.executable, "-m", "venv", "--without-pip", str(venv), cwd=folder).returncode == 0
    python = venv / "bin" / "python"
    where = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip()
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    done = run(*pip, cwd=folder)
    assert done.returncode == 0, done.stderr
    # a path, not a site directory: the editable installation of the source is not found by it
    (Path(where) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    mailboxd = venv / "bin" / "mailboxd"
    said = run(str(python), "-c", "import mailboxd; print(mailboxd.__file__)", cwd=folder).stdout
    assert said.startswith(str(venv)), f"the source is what runs: {said}"
    return mailboxd


def test_it_works_outside_of_the_source(installed: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("agents: {alpha: {workspace: ws, default: {reply: Text.}}}\n")
    workspace = tmp_path / "ws"
    made = run(str(installed), "init", str(workspace), "--agent", "alpha", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    config = workspace / ".mailboxd" / "config.yaml"
    config.write_text(f"agent: alpha\nopenclaw:\n  command: [{SCRIPTED}, --script, {script}]\n")
    (workspace / "mailbox" / "inbox" / "one.md").write_text("# One\n\nDo it.\n")
    done = run(str(installed), "run", "--until-idle", cwd=workspace)
    assert done.returncode == 0, done.stderr
    status = run(str(installed), "status", "--json", cwd=workspace)
    assert json.loads(status.stdout)["tasks"] == {"completed": 1}
    metrics = run(str(installed), "export", "metrics", cwd=workspace)
    assert 'mailboxd_tasks{agent="alpha",phase="completed"} 1.0' in metrics.stdout, metrics.stderr


def test_the_demo_needs_nothing_but_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(str(installed), "demo", "--json", cwd=tmp_path, PATH="/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    answer = Path(json.loads(done.stdout)["answer"])
    assert answer.is_relative_to(tmp_path / "mailboxd-demo")
    assert "Revenue in Q3 2026 was EUR 20.1 million" in answer.read_text(encoding="utf-8")


def test_each_command_has_a_man_page_beside_the_program(installed: Path) -> None:
    pages = installed.parents[1] / "share" / "man" / "man1"
    assert {page.name for page in pages.iterdir()} >= {"mailboxd.1", "mailboxd-send.1", "mailboxd-why.1"}
    assert "mailboxd send \\-\\-title" in (pages / "mailboxd-send.1").read_text(encoding="utf-8").replace("\\&", "")


def test_skill_plugin_and_units_are_inside(installed: Path, tmp_path: Path) -> None:
    run(str(installed), "init", str(tmp_path), "--agent", "alpha", cwd=tmp_path)
    skill = run(str(installed), "connect", "skill", "install", cwd=tmp_path)
    assert skill.returncode == 0, skill.stderr
    assert (tmp_path / "skills" / "mailboxd" / "SKILL.md").is_file()
    home = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": "", "PATH": str(tmp_path)}
    unit = run(str(installed), "connect", "service", "install", "--no-start", cwd=tmp_path, **home)
    assert unit.returncode == 0, unit.stderr
    (drop_in,) = (tmp_path / "home").rglob("mailboxd.conf")
    assert f'ExecStart="{installed.parent}/python' in drop_in.read_text()
    source = ROOT / "systemd" / "user" / "mailboxd@.service"
    assert (drop_in.parent.parent / "mailboxd@.service").read_bytes() == source.read_bytes()


def test_setup_finds_the_agents_of_an_openclaw(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "openclaw.json"
    config.write_text(json.dumps({"agents": {"entries": {"alpha": {"workspace": str(tmp_path / "ws")}}}}))
    (tmp_path / "script.yaml").write_text("agents: {alpha: {workspace: ws}}\n")
    program = tmp_path / "openclaw"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.setup.standin "$@"\n')
    program.chmod(0o755)
    env = {
        "PATH": str(tmp_path), "HOME": str(tmp_path / "home"), "XDG_STATE_HOME": "",
        "OPENCLAW_CONFIG_PATH": str(config), "MAILBOXD_SCRIPT": str(tmp_path / "script.yaml"),
    }  # fmt: skip
    done = run(str(installed), "setup", "--dry-run", cwd=tmp_path, **env)
    assert done.returncode == 0, done.stderr
    assert "○ workspace alpha" in done.stdout
    assert "OpenClaw's gateway: copy the plugin" in done.stdout
