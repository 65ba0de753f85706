"""A signature covers the parsed message, independent of transport changes to its bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.errors import MessageError
from mailboxd.formats.protocol.front_matter import canonical, with_signature
from mailboxd.formats.protocol.markdown import Section
from mailboxd.formats.protocol.messages import TaskMessage, parse_message, render_message

SIGNATURE = f"ed25519:{'0' * 32}:{'A' * 86}"
MESSAGE = b"---\ntype: task\ntask_id: 007\nfrom: analyst\nx: [1, {a: no}]\n---\n\n# Task: Go\n\n  indented\n\nEnd.\n"


def test_what_is_signed_is_written_down_exactly() -> None:
    """The example of docs/messages.md: another program that makes these bytes makes our signatures."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")
    shown = page.partition("\n## Signatures\n")[2]
    example, signed = re.findall(r"^```\n(.*?)\n```$", shown, re.MULTILINE | re.DOTALL)[:2]
    assert canonical(f"{example}\n".encode()).decode() == signed
    assert canonical(MESSAGE.replace(b"Go", "Gö 🙂".encode())).endswith(
        b',"# Task: G\\u00f6 \\ud83d\\ude42\\n\\n  indented\\n\\nEnd."]'
    )


@pytest.mark.parametrize(
    "carried",
    [
        MESSAGE.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + MESSAGE,
        b"\n\n" + MESSAGE,
        MESSAGE + b"\n \t\n",
        MESSAGE.replace(b"---\n\n#", b"---\n\n\n \n#"),
        MESSAGE.replace(b"type: task\ntask_id: 007\n", b"task_id: '007'\ntype: \"task\"\n"),
        MESSAGE.replace(b"x: [1, {a: no}]", b"x:\n- 1\n- a: no"),
        MESSAGE.replace(b"from: analyst\n", b"from: analyst   # a comment\n\n"),
        with_signature(MESSAGE, SIGNATURE),
        MESSAGE.replace(b"from:", b"bytes: 30\nfrom:"),
    ],
    ids=[
        "CRLF",
        "BOM",
        "blank lines before",
        "after",
        "in between",
        "order, quotes",
        "block",
        "comment",
        "signed",
        "bytes",
    ],
)
def test_what_transport_does_to_a_text_changes_nothing(carried: bytes) -> None:
    assert canonical(carried) == canonical(MESSAGE)


@pytest.mark.parametrize(
    "changed",
    [
        MESSAGE.replace(b"007", b"7"),
        MESSAGE.replace(b"analyst", b"Analyst"),
        MESSAGE.replace(b"x: [1, {a: no}]\n", b""),
        MESSAGE.replace(b"no}", b"'no '}"),
        MESSAGE.replace(b"[1, {a: no}]", b"['[1, {a: no}]']"),
        MESSAGE.replace(b"x:", b"'x ':"),
        MESSAGE.replace(b"End.", b"End"),
        MESSAGE.replace(b"  indented", b" indented"),
        MESSAGE.replace(b"\n\nEnd", b"\nEnd"),
        MESSAGE.replace(b"---\n\n#", b"y: ~\n---\n\n#"),
    ],
)
def test_anything_else_changes_it(changed: bytes) -> None:
    assert changed != MESSAGE
    assert canonical(changed) != canonical(MESSAGE)


def test_a_signature_is_one_more_line_and_replaces_an_earlier_one() -> None:
    once = with_signature(MESSAGE, SIGNATURE)
    assert once == MESSAGE.replace(b"\n---\n\n#", f'\nsignature: "{SIGNATURE}"\n---\n\n#'.encode())
    other = SIGNATURE.replace("A", "B")
    assert with_signature(once, other) == once.replace(SIGNATURE.encode(), other.encode())
    crlf = with_signature(MESSAGE.replace(b"\n", b"\r\n"), SIGNATURE)
    assert crlf.count(b"\n") == crlf.count(b"\r\n")
    assert parse_message(once, "x.md").message.signature == SIGNATURE


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"just prose", "no-frontmatter"),
        (b"---\n{type: task, task_id: a, from: b}\n---\n", "bad-yaml"),
        (b"---\ntype: task\nsignature:\n  nested: x\n---\n", "bad-yaml"),
        (b"---\ntype: task\n", "unterminated"),
    ],
)
def test_what_cannot_carry_a_signature_is_refused(raw: bytes, rule: str) -> None:
    with pytest.raises(MessageError) as refused:
        with_signature(raw, SIGNATURE)
    assert refused.value.rule == rule


@pytest.mark.parametrize(
    "text", ["x", "ed25519:00:AA", SIGNATURE + "=", SIGNATURE.upper(), "[1]", SIGNATURE[:-1] + "+"]
)
def test_a_signature_of_another_form_is_no_header(text: str) -> None:
    with pytest.raises(MessageError) as refused:
        parse_message(f"---\ntype: task\ntask_id: a\nfrom: b\nsignature: {text}\n---\n".encode(), "x.md")
    assert (refused.value.rule, refused.value.field) == ("wrong-type", "signature")


@given(st.text(min_size=1), st.text(), st.text())
def test_every_message_that_can_be_written_can_be_signed(heading: str, text: str, preamble: str) -> None:
    sections = (Section("A" + heading, text),)
    raw = render_message(TaskMessage(task_id="a", from_="b", preamble=preamble, sections=sections))
    signed = with_signature(raw, SIGNATURE)
    assert canonical(signed) == canonical(raw)
    assert parse_message(signed, "x").message.model_copy(update={"signature": None}) == parse_message(raw, "x").message


@given(st.binary(max_size=200))
def test_any_bytes_have_a_canonical_form_or_are_refused(raw: bytes) -> None:
    try:
        said = canonical(raw)
    except MessageError:
        return
    first, _, rest = said.partition(b"\n")
    assert first == b"mailboxd-message-1"
    assert "signature" not in json.loads(rest)[0]
