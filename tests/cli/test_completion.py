"""Completion is installed and removed, in a temporary home directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mailboxd.cli.commands import completion
from tests.cli.stage import Stage

BIN = Path(sys.executable).parent
RC = "alias ll='ls -l'\nexport X=1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR", "BASH_COMPLETION_USER_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def files(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file() and path.parts[-2] != "alpha"}


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".local/share/bash-completion/completions/mailboxd"),
        ("zsh", ".local/share/mailboxd/completion.zsh"),
        ("fish", ".config/fish/completions/mailboxd.fish"),
    ],
)
def test_one_command_installs_it_and_one_takes_it_away(stage: Stage, home: Path, shell: str, file: str) -> None:
    before = {home / ".zshrc", home / ".bashrc"}
    for path in before:
        path.write_text(RC)
    made = stage.run("connect", "completion", "install", "--shell", shell)
    assert made.exit_code == 0, made.output
    assert (home / file).read_text() == stage.run("connect", "completion", shell).stdout
    assert str(home / file) in made.stdout
    assert "already installed" in stage.run("connect", "completion", "install", "--shell", shell).stdout
    assert stage.run("connect", "completion", "uninstall", "--shell", shell).exit_code == 0
    assert not (home / file).exists()
    assert {path.read_text().rstrip("\n") for path in before} == {RC}
    assert stage.json("connect", "completion", "uninstall", "--shell", shell) == {"shell": shell, "changed": []}


def test_the_shell_is_that_of_the_user(stage: Stage, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert stage.json("connect", "completion", "install")["shell"] == "fish"
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    refused = stage.run("connect", "completion", "install")
    assert refused.exit_code == 2
    assert "--shell" in refused.stderr


def test_where_bash_reads_no_directory_its_own_file_does(home: Path) -> None:
    environ = {"HOME": str(home)}
    assert completion.location_of("bash", environ, lazy_bash=True).startup is None
    location = completion.location_of("bash", environ, lazy_bash=False)
    assert location.startup == home / ".bashrc"
    completion.install_script(location, "true")
    assert subprocess.run(["bash", "-n", str(home / ".bashrc")], check=True).returncode == 0


def test_a_startup_file_that_is_a_link_stays_one(home: Path) -> None:
    real = home / "dotfiles" / "zshrc"
    real.parent.mkdir()
    real.write_text(RC)
    real.chmod(0o640)
    (home / ".zshrc").symlink_to(real)
    completion.install_script(completion.location_of("zsh", {"HOME": str(home)}), "true")
    assert (home / ".zshrc").is_symlink()
    assert "mailboxd completion" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", ["", "a\n", "a", "a\n\n", "# >>> mailboxd completion >>>\nno end"])
def test_the_completion_block_keeps_existing_lines(text: str) -> None:
    whole = completion.with_block(text, "read it")
    assert completion.with_block(whole, "read it") == whole
    assert completion.without_block(whole).rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_new_shell_completes_our_verbs(stage: Stage, home: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed here")
    assert stage.run("connect", "completion", "install", "--shell", shell).exit_code == 0
    script = {
        "bash": 'source "$1"; COMP_WORDS=(mailboxd fle) COMP_CWORD=1; _mailboxd_completion mailboxd; echo $COMPREPLY',
        "zsh": "source ~/.zshrc; [[ $_comps[mailboxd] == _mailboxd_completion ]] && echo fleet",
        "fish": 'complete -C "mailboxd fle"',
    }[shell]
    file = completion.location_of(shell, {"HOME": str(home)}).file
    words = [
        program,
        *(["-f"] if shell == "zsh" else []),
        "-c",
        script,
        *(["bash", str(file)] if shell == "bash" else []),
    ]
    path = f"{BIN}:/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(words, env={"HOME": str(home), "PATH": path}, capture_output=True, text=True, timeout=120)
    assert "fleet" in done.stdout, done.stderr
