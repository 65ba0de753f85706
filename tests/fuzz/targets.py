"""The fuzz targets: for every parser of foreign text, a function that takes any bytes and checks its properties.

The properties: no exception except MessageError; its text is short and printable; parsed values survive a round trip;
the same bytes give the same result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from mailboxd.core.outcomes import Answer, Outcome, Results, Succeeded
from mailboxd.core.vocabulary import Turn
from mailboxd.errors import ConfigError, MessageError
from mailboxd.formats.config import default_text, load
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.formats.protocol.front_matter import canonical, with_signature
from mailboxd.formats.protocol.messages import parse_message, render_message
from mailboxd.formats.protocol.plan import parse_dag, render_dag
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.formats.protocol.spec import parse_checks, read_actions, render_actions, render_checks, render_spec
from mailboxd.formats.protocol.taskmd import parse_task_file, render_task_file
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.openclaw import parse_agents, parse_config_file, parse_rules, parse_section, parse_version
from mailboxd.perform.agents.openclaw_runs import ReplySource, parse_reply, parse_run
from mailboxd.perform.agents.outcome import classify

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).with_name("corpus")
"""Inputs that once violated a property: `corpus/<target>/<name>`."""
SIGNATURE = f"ed25519:{'0' * 32}:{'A' * 86}"
_TEMPLATES = Templates(None)
_LONGEST_ERROR = 2048
_MOST_QUOTED = 4000
"""Lines; more would make a body too large."""
_FOLDER = TemporaryDirectory(prefix="mailboxd-fuzz-")
_KEYS = ("limits.turns", "signing.require", "openclaw.command", "checks.commands", "gates.reviewers", "nope")


def refused(error: MessageError) -> None:
    """An error is at most 2 KiB on one line, without terminal control characters."""
    text = str(error)
    assert error.rule, error
    assert re.fullmatch("[a-z][a-z0-9-]*", error.rule), error.rule
    assert len(text.encode()) <= _LONGEST_ERROR, len(text)
    assert text.isprintable(), text


def message(raw: bytes) -> None:
    """A file of the inbox: `parse_message`, and its round trip."""
    try:
        parsed = parse_message(raw, "fuzz.md")
    except MessageError as error:
        refused(error)
        return
    assert parse_message(raw, "fuzz.md") == parsed
    assert all(text.isprintable() and len(text) < _LONGEST_ERROR for text in parsed.warnings)
    try:
        written = render_message(parsed.message)
    except MessageError as error:
        if error.rule != "too-large":
            raise
        return
    again = parse_message(written, "fuzz.md").message
    assert again == parsed.message
    assert render_message(again) == written


def signature(raw: bytes) -> None:
    """The signed bytes of a message, and adding a signature."""
    try:
        before = canonical(raw)
        signed = with_signature(raw, SIGNATURE)
    except MessageError as error:
        refused(error)
        return
    assert canonical(signed) == before
    assert with_signature(signed, SIGNATURE) == signed


def taskfile(raw: bytes) -> None:
    """A task.md that a person or an agent wrote."""
    try:
        read = parse_task_file(raw, "task.md")
        written = render_task_file(read, _TEMPLATES)
        read.spec()
    except MessageError as error:
        refused(error)
        return
    assert parse_task_file(written, "task.md") == read


def plan(raw: bytes) -> None:
    """A `## DAG` section."""
    try:
        dag = parse_dag(text(raw), path="DAG")
    except MessageError as error:
        refused(error)
        return
    assert parse_dag(render_dag(dag), path="DAG") == dag


def checks(raw: bytes) -> None:
    """A `## Checks` section."""
    try:
        found = parse_checks(text(raw), path="Checks")
    except MessageError as error:
        refused(error)
        return
    assert parse_checks(render_checks(found), path="Checks") == found


def actions(raw: bytes) -> None:
    """A `## Planned Actions` section."""
    try:
        found = read_actions(text(raw), path="Planned Actions")
    except MessageError as error:
        refused(error)
        return
    assert read_actions(render_actions(found), path="Planned Actions") == found


def answer(raw: bytes) -> None:
    """An agent's answer: no exception, no failure read as success, no quotation read as an answer."""
    said = text(raw)
    read = read_answer(said)
    assert isinstance(read, Answer)
    assert read_answer(said) == read
    assert not isinstance(read_answer(f"---\nstatus: failed\n---\n{said}"), Results)
    if said.count("\n") + said.count("\r") < _MOST_QUOTED:
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", said) or [""]))
        quoted = f"---\ntype: reply\nstatus: done\n---\n## Results\n\n{fence}\n{said}\n{fence}"
        assert isinstance(read_answer(quoted), Results), quoted
    draft = read_answer(said, Asked(Turn.DRAFT))
    if hasattr(draft, "spec"):
        render_spec(draft.spec)


def outcome(raw: bytes) -> None:
    """The exit status of OpenClaw's program, then its output."""
    rc = [0, 0, 1, 2, 124, 130, 143, -9, -15, None][raw[0] % 10] if raw else 0
    left = Exit(rc, raw[1:], raw[1:200])
    read = classify(left)
    assert isinstance(read, Outcome)
    assert classify(left) == read
    if isinstance(read, Succeeded):
        assert rc == 0, "only exit 0 is success"
        answer(read.text.encode("utf-8", "surrogatepass"))


def openclaw(raw: bytes) -> None:
    """The output of OpenClaw's other commands: parsed or None."""
    left = Exit(0 if raw[:1] != b"1" else 1, raw[1:])
    parse_run(left)
    for source in ReplySource:
        parse_reply(source, left, "run_1")
    for read in (parse_version, parse_agents, parse_config_file):
        read(left)
    parse_rules(left, "main")
    parse_section(left)


def config(raw: bytes) -> None:
    """config.yaml, which an agent may write: a configuration, or an error that names the file."""
    file = Path(_FOLDER.name) / "config.yaml"
    file.write_bytes(raw)
    try:
        read = load(file)
    except ConfigError as error:
        told(str(error), file)
        return
    assert read.agent


def told(error: str, file: Path) -> None:
    """An error about a file names the file and is short."""
    assert str(file) in error
    assert len(error) < 8 * _LONGEST_ERROR


def text(raw: bytes) -> str:
    """Any bytes as text, with surrogates for bytes that are not UTF-8."""
    return raw.decode("utf-8", "surrogateescape")


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (*(message, signature, taskfile, plan, checks, actions, answer, outcome, openclaw, config),)
}


def seeds(name: str) -> Iterator[bytes]:
    """Initial inputs: examples of the documentation, recorded output of OpenClaw, and the corpus."""
    yield from (path.read_bytes() for path in sorted(CORPUS.glob(f"{name}/*")))
    if name == "config":
        yield default_text("main").encode()
        yield re.sub("(?m)^#(?=[ a-z_]+:)", "", default_text("main")).encode()
        yield from (f"agent: main\n{key.replace('.', ': {')}: 1{'}' * key.count('.')}\n".encode() for key in _KEYS)
        return
    if name in ("outcome", "openclaw"):
        for path in sorted((ROOT / "tests" / "agents" / "fixtures").glob("*.json")):
            run = json.loads(path.read_text(encoding="utf-8"))
            yield b"\0" + run.get("stdout", "").encode()
        return
    examples = []
    for page in ("messages.md", "taskmd.md", "when-work-counts.md"):
        shown = (ROOT / "docs" / page).read_text(encoding="utf-8")
        examples += re.findall(r"^(`{3,4})\w*\n(.*?)^\1$", shown, re.MULTILINE | re.DOTALL)
    for _, example in examples:
        yield example.encode()
        yield from (inner.encode() for inner in re.findall(r"^~~~\w*\n(.*?)^~~~$", example, re.MULTILINE | re.DOTALL))
