"""`mailboxd connect completion`: shell completion, with the scripts that click generates."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

from mailboxd.cli.groups import Group
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import WorldError

SHELLS = ("bash", "zsh", "fish")
_BEGIN, _END = "# >>> mailboxd completion >>>", "# <<< mailboxd completion <<<"
_BLOCK = re.compile(f"^{_BEGIN}\n[^\n]*\n{_END}\n", re.MULTILINE)
_BASH_COMPLETION = (
    Path("/usr/share/bash-completion/bash_completion"),
    Path("/etc/bash_completion"),
    Path("/usr/local/share/bash-completion/bash_completion"),
)
_shell = click.option("--shell", type=click.Choice(SHELLS), help="Default: taken from $SHELL.")


@click.group("completion", cls=Group)
def completion_command() -> None:
    """Complete commands, options and task ids when you press Tab."""


def _print_command(shell: str, example: str) -> click.Command:
    @verb(shell, f"connect completion {shell} > {example}")
    def command(session: Session) -> None:
        script = script_of(shell)
        say(to_json({"shell": shell, "script": script}) if session.as_json else script)

    command.help = f"Print the completion script for {shell}."
    return command


def script_of(shell: str) -> str:
    """The completion script for a shell of SHELLS."""
    from mailboxd.cli.program import program

    kind = get_completion_class(shell)
    if kind is None:
        raise AssertionError(f"click does not support {shell}")
    # the method of the base class: that of bash first starts bash to ask for its version
    return ShellComplete.source(kind(program, {}, "mailboxd", "_MAILBOXD_COMPLETE")).rstrip()


@verb("install", "connect completion install", "connect completion install --shell zsh")
@_shell
def install(session: Session, shell: str | None) -> None:
    """Install completion for your shell, effective in new terminals.

    Writes to your completion directory. zsh, and bash without the package bash-completion, also need a marked block of
    three lines in ~/.zshrc or ~/.bashrc.
    """
    shell = _shell_or_default(shell)
    changed = install_script(location_of(shell, os.environ), f"{script_of(shell)}\n")
    _print_result(session, shell, changed, "installed")


@verb("uninstall", "connect completion uninstall", "connect completion uninstall --shell zsh")
@_shell
def uninstall(session: Session, shell: str | None) -> None:
    """Remove what `connect completion install` added."""
    shell = _shell_or_default(shell)
    # the package bash-completion may have been installed since, so the startup file is checked in any case
    _print_result(session, shell, remove(location_of(shell, os.environ, lazy_bash=False)), "removed")


for _command in (
    _print_command("bash", "~/.local/share/bash-completion/completions/mailboxd"),
    _print_command("zsh", "~/.zfunc/_mailboxd"),
    _print_command("fish", "~/.config/fish/completions/mailboxd.fish"),
    install,
    uninstall,
):
    completion_command.add_command(_command)


def _shell_or_default(shell: str | None) -> str:
    found = shell or Path(os.environ.get("SHELL", "")).name
    if found not in SHELLS:
        raise click.UsageError(f"$SHELL is none of {', '.join(SHELLS)}; give --shell")
    return found


def _print_result(session: Session, shell: str, changed: list[Path], word: str) -> None:
    if session.as_json:
        say(to_json({"shell": shell, "changed": [str(path) for path in changed]}))
        return
    for path in changed:
        say(for_terminal(str(path)))
    already = "" if changed else "already "
    say(f"completion for {shell} is {already}{word}" + ("; it takes effect in new terminals" if changed else ""))


@dataclass(frozen=True, slots=True)
class Location:
    """Where a script is installed and, for a shell that does not load it itself, the line in a startup file."""

    file: Path
    startup: Path | None = None
    line: str = ""


def location_of(shell: str, environ: Mapping[str, str], *, lazy_bash: bool | None = None) -> Location:
    """The location for a shell of SHELLS. `lazy_bash`: the package bash-completion is installed (None: check)."""
    home = Path(environ.get("HOME") or Path.home())
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    if shell == "fish":
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        return Location(config / "fish" / "completions" / "mailboxd.fish")
    if shell == "zsh":
        file = data / "mailboxd" / "completion.zsh"
        path = shlex.quote(str(file))
        init = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }"
        return Location(
            file, Path(environ.get("ZDOTDIR") or home) / ".zshrc", f"[[ -r {path} ]] && {{ {init}; source {path}; }}"
        )
    file = Path(environ.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion") / "completions" / "mailboxd"
    if lazy_bash if lazy_bash is not None else any(path.exists() for path in _BASH_COMPLETION):
        return Location(file)
    path = shlex.quote(str(file))
    return Location(file, home / ".bashrc", f"[ -r {path} ] && . {path}")


def install_script(location: Location, script: str) -> list[Path]:
    """Write the script and, if needed, the block; returns the changed files. Raises WorldError."""
    wanted = {location.file: script}
    if location.startup is not None:
        wanted[location.startup] = with_block(_read(location.startup) or "", location.line)
    changed = [path for path, text in wanted.items() if _read(path) != text]
    for path in changed:
        _write(path, wanted[path])
    return changed


def remove(location: Location) -> list[Path]:
    """Remove what `install_script` added; returns the changed files. Raises WorldError."""
    changed = []
    try:
        if location.file.exists():
            location.file.unlink()
            changed.append(location.file)
    except OSError as error:
        raise WorldError(f"{location.file}: cannot be removed: {error.strerror}") from error
    if location.startup is not None:
        before = _read(location.startup) or ""
        if (after := without_block(before)) != before:
            _write(location.startup, after)
            changed.append(location.startup)
    return changed


def with_block(text: str, line: str) -> str:
    """A startup file with the marked block at its end, which replaces an earlier one."""
    kept = without_block(text)
    if kept and not kept.endswith("\n"):
        kept += "\n"
    return f"{kept}{_BEGIN}\n{line}\n{_END}\n"


def without_block(text: str) -> str:
    """A startup file without the three lines of the block."""
    return _BLOCK.sub("", text)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WorldError(f"{path}: cannot be read: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    """Write atomically. A symbolic link is followed, and the mode of an existing file kept."""
    real = Path(os.path.realpath(path))
    hidden = real.with_name(f".{real.name}.mailboxd.tmp")
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_text(text, encoding="utf-8", errors="surrogateescape")
        if real.exists():
            hidden.chmod(real.stat().st_mode & 0o7777)
        hidden.replace(real)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise WorldError(f"{path}: cannot be written: {error.strerror}") from error
