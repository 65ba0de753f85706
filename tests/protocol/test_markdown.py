"""Bodies as title, preamble and sections, and foreign text that cannot become a section (protocol section 2)."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailboxd.errors import MessageError
from mailboxd.formats.protocol.markdown import Body, Section, escape, join_body, split_body, trim

_MARKDOWN = st.lists(
    st.sampled_from(["#", "##", "###", "`", "```", "````", "~~~", "\\", " ", "  ", "\t", "\n", "\n\n", "a", "Results"]),
    max_size=40,
).map("".join)


def test_a_body_is_title_preamble_and_sections_in_order() -> None:
    body = split_body("# Task: T\n\nhello\n\n## Context\n\nc\n### Deep\n\n##  Odd  One \nx\n", first_line=5)
    assert body == Body("Task: T", "hello", (Section("Context", "c\n### Deep"), Section("Odd One", "x")))
    assert [section.line for section in body.sections] == [11, 15]


@pytest.mark.parametrize("fence", ["```", "````", "~~~", "```python", "  ~~~ text"])
def test_a_heading_in_fenced_code_is_no_section(fence: str) -> None:
    close = fence.strip().split("python")[0].split(" ")[0]
    text = f"before\n{fence}\n## Results\n# Title\n{close}\nafter"
    assert split_body(f"## A\n{text}\n## B\n").sections == (Section("A", text), Section("B"))


def test_a_fence_that_is_never_closed_swallows_nothing() -> None:
    body = split_body("## Context\n```\ncode\n## Instructions\ngo\n")
    assert body.sections == (Section("Context", "```\ncode"), Section("Instructions", "go"))


@pytest.mark.parametrize("line", ["```", "~~~~", "```` x", "    ````", "\\````"])
def test_a_fence_is_closed_only_by_one_as_long_of_the_same_kind_with_nothing_behind(line: str) -> None:
    assert len(split_body(f"## A\n````\n## B\n{line}\n").sections) == 2
    assert len(split_body(f"## A\n````\n## B\n{line}\n`````\n").sections) == 1


@pytest.mark.parametrize("line", ["##", "## ", "##x", "### x", "    ## x", "\\## x", "text ## x", "##\u00a0x"])
def test_what_only_looks_like_a_section_is_text(line: str) -> None:
    assert len(split_body(f"## A\n{line}\n").sections) == 1


def test_headings_are_found_whatever_their_case_and_final_marks() -> None:
    assert Section("RESULTS:").is_called("Results")
    assert Section("results ##").is_called("Results")
    assert not Section("Partial Results").is_called("Results")


def test_foreign_text_cannot_make_a_section() -> None:
    text = "## Results\nforged\n```\n## DAG\n```\n```open\n\\## x\n# fine\n### fine"
    assert escape(text) == "\\## Results\nforged\n```\n## DAG\n```\n\\```open\n\\\\## x\n# fine\n### fine"
    assert split_body(join_body("", "", [Section("A", text), Section("B", "b")])).sections == (
        Section("A", text),
        Section("B", "b"),
    )


def test_text_that_no_file_can_hold_is_replaced_when_a_section_is_made() -> None:
    assert Section("A\n\0b", "x\r\ny\0\ud800  \n\n") == Section("A b", "x\ny\ufffd\ufffd")
    with pytest.raises(ValueError, match="heading"):
        Section(" \u200b")


def test_too_many_headings_are_refused() -> None:
    with pytest.raises(MessageError, match="too-large"):
        split_body("## a\n" * 200_000)


@pytest.mark.parametrize("line", ["\n", " \n", "a\n", "~~~x\n", "\\#\n", "```\n", "`", "\\", "# ", "   a\n"])
def test_the_scan_is_linear(line: str) -> None:
    text = line * (200_000 // len(line))
    started = time.process_time()
    escape(text)
    assert time.process_time() - started < 3  # takes 0.1 s; quadratic would be minutes


@given(_MARKDOWN)
@example("```\n## a\n````\n## b")
@example("~~~\n```\n~~~\n```")
def test_escaping_is_undone_and_leaves_no_section(text: str) -> None:
    for title in (False, True):
        assert split_body(f"## S\n\n{escape(text, title=title)}").sections == (Section("S", text),)
        assert split_body(escape(text, title=title)).sections == ()
    assert split_body(escape(text, title=True)).title == ""


@given(st.lists(st.tuples(_MARKDOWN, st.sampled_from(["A", "Results", "## x", "`~"])), max_size=4), _MARKDOWN)
def test_what_is_joined_is_split_again(parts: list[tuple[str, str]], preamble: str) -> None:
    sections = tuple(Section(heading, text) for text, heading in parts)
    body = Body("T", trim(preamble), sections)
    assert split_body(join_body(body.title, body.preamble, body.sections)) == body


@given(st.text())
def test_trimming_is_a_normal_form(text: str) -> None:
    assert trim(trim(text)) == trim(text)
