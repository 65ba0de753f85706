"""Properties of messages: every message survives a round trip; any bytes are parsed or refused."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mailboxd.core.model import Finding
from mailboxd.core.sanitize import storable_line
from mailboxd.core.times import to_text
from mailboxd.core.vocabulary import Gate, Join, Synthesis, Verdict, is_id
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.headers import MAX_BUDGET, RANGES
from mailboxd.formats.protocol.markdown import Section, split_body, trim
from mailboxd.formats.protocol.messages import (
    MESSAGE_TYPES,
    Message,
    ReplyMessage,
    TaskMessage,
    parse_message,
    render_message,
    render_message_with,
)

ids = st.from_regex(re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}"), fullmatch=True).filter(is_id)
storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
markdown = st.lists(
    st.sampled_from(
        ["# ", "## ", "### ", "```", "~~~", "\\", "\n", "\n\n", "---\n", "type: x", "a", " ", "é", "\r", "\0"]
    ),
    max_size=20,
).map("".join)
times = st.integers(-60_000_000_000, 250_000_000_000).map(to_text)
keys = st.sampled_from(["title", "sections", "from_", "preamble:", "1e3", "no", "frm", "<<", "- x", "a: b"]) | storable
structures = st.recursive(
    storable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(storable.filter(bool), inner, max_size=3),
    max_leaves=6,
)
sections = st.builds(
    Section,
    st.sampled_from(["Results", "findings", "DAG", "# x"]) | storable.filter(lambda s: bool(storable_line(s))),
    markdown,
)
findings = st.builds(
    Finding,
    st.sampled_from(["critical", "major", "minor"]),
    storable.filter(lambda message: bool(message.strip())),
    st.none() | storable,
    st.none() | st.integers(1, 10_000_000),
    st.none() | storable,
)
values: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("subtask_id", "to", "message_id", "in_reply_to", "attempt_id", "root_task_id"), ids),
    **dict.fromkeys(("deadline", "sent_at", "completed_at"), times),
    **{name: st.integers(low, high) for name, (low, high) in RANGES.items() if name != "usage_tokens"},
    "protocol": st.sampled_from(["1", "2", "2.0", "1.9"]),
    "reply_token": st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20),
    "gates": st.lists(st.sampled_from(Gate)).map(tuple),
    "reviewers": st.lists(ids, max_size=4).map(tuple),
    "idempotent": st.booleans(),
    "budget_usd": st.floats(0, MAX_BUDGET),
    "traceparent": st.just("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    "title": storable,
    "preamble": markdown,
    "sections": st.lists(sections, max_size=4).map(tuple),
}
by_type: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "task": {
        "synthesis": st.none() | st.sampled_from(Synthesis),
        "join": st.none() | st.sampled_from(Join),
        "delegation_path": st.none() | st.lists(st.sampled_from(["a:" + "0" * 16, "0.b:" + "9e" * 8])).map(tuple),
    },
    "reply": {
        "status": st.sampled_from(["done", "failed"]),
        "failure": st.sampled_from([None, "permanent", "transient"]),
        "answer": storable,
        "usage_tokens": st.none() | st.integers(*RANGES["usage_tokens"]),
        "cost_usd": st.none() | st.floats(0, MAX_BUDGET),
    },
    "review": {"verdict": st.sampled_from(Verdict), "findings": st.lists(findings, max_size=3).map(tuple)},
    "approval": {"approval_id": ids, "decision": st.sampled_from(["approved", "rejected", "request_changes"])},
}


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(sorted(MESSAGE_TYPES)))
    model = MESSAGE_TYPES[kind]
    own = {name: draw(strategy) for name, strategy in by_type.get(kind, {}).items()}
    common = draw(st.fixed_dictionaries({"task_id": ids, "from_": ids}, optional=values))
    known = {*model.header_fields(), "bytes", "sha256"}
    extra = draw(st.dictionaries(keys.filter(lambda k: k not in known and 0 < len(k) < 100), structures, max_size=3))
    colliding = {"title", "sections", "preamble", "from_"}
    shadowed = {f"{key}:" if key.rstrip(":") in colliding else key: value for key, value in extra.items()}
    return model.model_validate({**shadowed, **common, **own})


@given(messages())
@example(TaskMessage(task_id="a", from_="a", reviewers=(), gates=()))
@example(TaskMessage.model_validate({"task_id": "a", "from_": "a", "sections:": "", "title:": ""}))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_is_written_is_read_back_equal_and_writing_is_a_fixed_point(message: Message) -> None:
    raw = render_message(message)
    read = parse_message(raw, "a.md").message
    assert read == message
    assert render_message(read) == raw


@pytest.mark.slow
@given(messages())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_other_yaml_readers_read_ids_as_the_same_texts(message: Message) -> None:
    header = yaml.safe_load(render_message(message).decode().split("\n---\n")[0].removeprefix("---\n"))
    assert (header["task_id"], header["from"]) == (message.task_id, message.from_)


@given(st.builds(Section, st.just("Results"), markdown), ids)
def test_any_text_an_agent_wrote_can_be_sent_as_a_section(section: Section, task_id: str) -> None:
    message = TaskMessage(task_id=task_id, from_="a", sections=(section, Section("End", "e")))
    assert parse_message(render_message(message), "a.md").message.sections == message.sections


@given(markdown | storable)
@example("# Task: T\n\n## Results\n\n```\nnever closed\n\n## End")
@example("\n\n \\## x\n\n\n\n")
def test_any_text_that_a_template_made_is_read_as_the_same_parts(text: str) -> None:
    raw = render_message_with(ReplyMessage(task_id="t", from_="a", status="done", title="gone"), text)
    read = parse_message(raw, "a.md").message
    parts = split_body(trim(text))
    assert (read.title, read.preamble, read.sections) == (parts.title, parts.preamble, parts.sections)
    assert parse_message(render_message(read), "a.md").message == read


_PIECES = [
    b"---\n", b"type: ", b"task", b"reply", b"review", b"approval", b"\ntask_id: ", b"\nfrom: ", b"a", b"\n",
    b"status: done", b"verdict: approved\n", b"findings: [x]\n", b"attempt: ", b"99", b"gates: ", b"[", b"]", b"{",
    b"}", b"&x ", b"*x", b"!t ", b": ", b"- ", b"'", b'"', b"\\", b"<<", b"# Task: T\n", b"## Findings\n",
    b"```yaml\n", b"```\n", b"\x00", b"\xff", b"\r\n", b"\r", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"%YAML 1.1\n",
    b"...\n", b"protocol: 3\n", b"approved: true\n", b"bytes: 5\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=25).map(b"".join) | st.binary(max_size=100), st.text(max_size=20))
@example(b"---\ntype: task\ntask_id: a\nfrom: a\n" + b"x" * 300 + b": 1\n---\n", "a.md")
@example(b"---\ntype: task\ntask_id: a\nfrom: a\n---\n# " + b"x" * 5000, "a.md")
@example(b"---\ntype: task\ntask_id: a\nfrom: a\n'self': 1\n'__init__': 2\n---\n", "a.md")
def test_any_bytes_under_any_name_are_read_or_refused_and_nothing_else(raw: bytes, path: str) -> None:
    try:
        parsed = parse_message(raw, path)
    except MessageError as error:
        assert len(error.problem) + len(error.hint) < 2000  # noqa: PT017 - both outcomes are right
        assert (error.problem + error.hint).isprintable()  # noqa: PT017
    else:
        assert parse_message(render_message(parsed.message), path).message == parsed.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", ["\n", " \n", "a\n", "## a\n", "```\n", "~~~x\n", "\\#\n", "`", "```yaml\n", "- a\n", "## Findings\n", "\r"]
)
def test_a_hostile_megabyte_is_read_or_refused_in_time(body: str) -> None:
    head = "---\ntype: review\ntask_id: a\nfrom: b\nverdict: approved\n---\n## Findings\n"
    raw = (head + body * ((1 << 20) // len(body))).encode()[: 1 << 20]

    def timed() -> float:
        started = time.process_time()
        with contextlib.suppress(MessageError):
            parse_message(raw, "a.md")
        return time.process_time() - started

    # The promise is 50 ms of an idle CPU; what is not linear takes minutes.
    assert min(timed() for _ in range(3)) < 0.25


def test_a_thousand_misspelt_headers_cost_no_more_than_a_few() -> None:
    header = "".join(f"priorit{n}: x\n" for n in range(900))
    started = time.process_time()
    parsed = parse_message(f"---\ntype: task\ntask_id: a\nfrom: b\n{header}---\n".encode(), "a.md")
    assert time.process_time() - started < 0.5
    assert len(parsed.warnings) < 30
