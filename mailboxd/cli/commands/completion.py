"""`mailboxd completion bash|zsh|fish|install|uninstall`: a shell completes verbs, options and tasks."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import WorldError

# Where each shell looks for completions, and putting ours there: nothing but a file of our own, where that is enough.
#
# zsh reads no directory of a user's by itself, and bash only with the package bash-completion: there a marked block in
# the shell's own file reads ours. `remove` takes away exactly what `install` put there.

SHELLS = ("bash", "zsh", "fish")
_BEGIN, _END = "# >>> mailboxd completion >>>", "# <<< mailboxd completion <<<"
_BLOCK = re.compile(f"^{_BEGIN}\n[^\n]*\n{_END}\n", re.MULTILINE)
_BASH_COMPLETION = (
    Path("/usr/share/bash-completion/bash_completion"),
    Path("/etc/bash_completion"),
    Path("/usr/local/share/bash-completion/bash_completion"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Our file; and, where the shell does not read it by itself, the file of the user that is to do it, and how."""

    file: Path
    startup: Path | None = None
    line: str = ""


def place_of(shell: str, environ: Mapping[str, str], *, lazy_bash: bool | None = None) -> Place:
    """The place for a shell of `SHELLS`. `lazy_bash`: bash-completion is installed (default: look)."""
    home = Path(environ.get("HOME") or Path.home())
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    if shell == "fish":
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        return Place(config / "fish" / "completions" / "mailboxd.fish")
    if shell == "zsh":
        file = data / "mailboxd" / "completion.zsh"
        started = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }"
        read = f"[[ -r {_quoted(file)} ]] && {{ {started}; source {_quoted(file)}; }}"
        return Place(file, Path(environ.get("ZDOTDIR") or home) / ".zshrc", read)
    folder = Path(environ.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion")
    file = folder / "completions" / "mailboxd"
    if lazy_bash if lazy_bash is not None else any(path.exists() for path in _BASH_COMPLETION):
        return Place(file)
    return Place(file, home / ".bashrc", f"[ -r {_quoted(file)} ] && . {_quoted(file)}")


def shell_of(environ: Mapping[str, str]) -> str | None:
    """The user's shell by `SHELL`, if it is one of `SHELLS`."""
    name = Path(environ.get("SHELL", "")).name
    return name if name in SHELLS else None


def install_script(place: Place, script: str) -> list[Path]:
    """Write the script, and the block where one is needed; the files that were changed. Raises WorldError."""
    changed = []
    if _text(place.file) != script:
        _write(place.file, script)
        changed.append(place.file)
    if place.startup is not None:
        before = _text(place.startup) or ""
        after = with_block(before, place.line)
        if after != before:
            _write(place.startup, after)
            changed.append(place.startup)
    return changed


def remove(place: Place) -> list[Path]:
    """Take away what `install` put there; the files that were changed. Raises WorldError.

    For bash give the place without `lazy_bash`: that package may have come since.
    """
    changed = []
    try:
        if place.file.exists():
            place.file.unlink()
            changed.append(place.file)
    except OSError as error:
        raise WorldError(f"{place.file}: cannot be removed: {error.strerror}") from error
    before = None if place.startup is None else _text(place.startup)
    if place.startup is not None and before is not None and (after := without_block(before)) != before:
        _write(place.startup, after)
        changed.append(place.startup)
    return changed


def with_block(text: str, line: str) -> str:
    """A startup file with our block at its end; one that is there already is replaced."""
    kept = without_block(text)
    if kept and not kept.endswith("\n"):
        kept += "\n"
    return f"{kept}{_BEGIN}\n{line}\n{_END}\n"


def without_block(text: str) -> str:
    """A startup file without our block: exactly those three lines. What else stands there is the user's."""
    return _BLOCK.sub("", text)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WorldError(f"{path}: cannot be read: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    """Whole or not at all; a file that is a link is written where it leads, and keeps its mode."""
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


_shell = click.option("--shell", type=click.Choice(SHELLS), help="Default: taken from $SHELL.")


@click.group("completion")
def completion_command() -> None:
    """Complete commands, options and task ids when you press Tab."""


def _printing(shell: str, example: str) -> click.Command:
    @verb(shell, f"completion {shell} > {example}")
    def completion_command(session: Session) -> None:
        script = script_of(shell)
        say(to_json({"shell": shell, "script": script}) if session.as_json else script)

    completion_command.help = f"Print the completion script for {shell}."
    return completion_command


def script_of(shell: str) -> str:
    """The script of a shell of `shells.SHELLS`."""
    from mailboxd.cli.program import program

    kind = get_completion_class(shell)
    if kind is None:
        raise AssertionError(f"click knows no {shell}")
    # the script of the base class: that of bash would first start bash to ask its version
    return ShellComplete.source(kind(program, {}, "mailboxd", "_MAILBOXD_COMPLETE")).rstrip()


@verb("install", "completion install", "completion install --shell zsh")
@_shell
def install(session: Session, shell: str | None) -> None:
    """Install completion for your shell, effective in new terminals.

    Writes to your completion directory. zsh, and bash without the package bash-completion, also need a marked block of
    three lines in ~/.zshrc or ~/.bashrc.
    """
    shell = _which(shell)
    script = f"{script_of(shell)}\n"
    _tell(session, shell, install_script(place_of(shell, os.environ), script), "installed")


@verb("uninstall", "completion uninstall", "completion uninstall --shell zsh")
@_shell
def uninstall(session: Session, shell: str | None) -> None:
    """Remove what `completion install` added."""
    shell = _which(shell)
    _tell(session, shell, remove(place_of(shell, os.environ, lazy_bash=False)), "removed")


def _which(named: str | None) -> str:
    shell = named or shell_of(os.environ)
    if shell is None:
        raise click.UsageError(f"the variable SHELL names none of {', '.join(SHELLS)}: say --shell")
    return shell


def _tell(session: Session, shell: str, changed: list[Path], word: str) -> None:
    if session.as_json:
        say(to_json({"shell": shell, "changed": [str(path) for path in changed]}))
    elif changed:
        for path in changed:
            say(for_terminal(str(path)))
        say(f"completion for {shell} is {word}; a new terminal has it so")
    else:
        say(f"completion for {shell} was {word} before; nothing is changed")


for _verb in (
    _printing("bash", "~/.local/share/bash-completion/completions/mailboxd"),
    _printing("zsh", "~/.zfunc/_mailboxd"),
    _printing("fish", "~/.config/fish/completions/mailboxd.fish"),
    install,
    uninstall,
):
    completion_command.add_command(_verb)
