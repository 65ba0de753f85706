"""Foreign text is harmless for each purpose, character by character where it matters."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.sanitize import (
    blockquote,
    excerpt,
    first_line,
    for_drawing,
    for_file_name,
    for_log,
    for_page,
    for_preview,
    for_terminal,
    one_line,
    storable_line,
    storable_text,
)

GONE = [range(0x00, 0x20), range(0x7F, 0xA0), [0x200B, 0x200E, 0x200F], range(0x202A, 0x202F), range(0x2060, 0x206A),
        [0xFEFF, 0xFFFE, 0xFFFF], range(0xD800, 0xE000)]  # fmt: skip
REMOVED = {code for codes in GONE for code in codes}
UNSTORABLE = {0, *range(0xD800, 0xE000)}
EVERYTHING = "".join(map(chr, range(sys.maxunicode + 1)))
SHOWN = [for_terminal, for_page, for_log, for_preview, for_drawing, for_file_name, one_line, first_line, excerpt]


def test_a_stored_line_keeps_a_character_drops_it_or_takes_it_for_white_space() -> None:
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        kept = storable_line(f"a{letter}b")
        assert kept == ("a b" if letter.isspace() else "ab" if code in REMOVED else f"a{letter}b"), hex(code)


@pytest.mark.slow
def test_a_stored_text_holds_every_character_that_a_file_can_hold() -> None:
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        wanted = "\n" if letter == "\r" else "\ufffd" if code in UNSTORABLE else letter
        assert storable_text(letter) == wanted, hex(code)


def test_removed_characters_leave_no_white_space_behind() -> None:
    assert storable_line(" a \u200b b\t\tc \x1b") == "a b c"
    assert storable_line("  plain   words ") == "plain words"
    assert storable_text("one\r\ntwo\rthree\0") == "one\ntwo\nthree\ufffd"


@pytest.mark.parametrize("show", [for_terminal, for_page])
def test_a_terminal_and_a_page_keep_lines_and_tabs_and_escape_the_rest(show: Callable[[str], str]) -> None:
    assert show("a\tb\n\x1b[2J\u202eevil\udcff\x9b\u2028\r") == "a\tb\n\\x1b[2J\\u202eevil\\udcff\\x9b\\u2028\\r"
    assert show(EVERYTHING).replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("show", [for_log, for_preview])
def test_a_log_line_and_a_preview_line_stay_on_one_line(show: Callable[[str], str]) -> None:
    assert show("Grüße, 世界 — “ok” 100 %") == "Grüße, 世界 — “ok” 100 %"
    assert show("a\tb\x1b[1m\u2028\ndone\u200b\udc80") == "a\\tb\\x1b[1m\\u2028\\ndone\\u200b\\udc80"
    assert show(EVERYTHING).isprintable()


def test_a_drawing_is_xml_without_characters_that_xml_lacks() -> None:
    assert for_drawing('<a b="c">&\n\t\x1b\u202e\ud800') == "&lt;a b=&quot;c&quot;&gt;&amp;  \ufffd\ufffd\ufffd"
    assert for_drawing(EVERYTHING).isprintable()


def test_a_file_name_shows_its_unsafe_bytes_and_nothing_else() -> None:
    assert for_file_name("ä (1).md") == "ä (1).md"
    assert for_file_name("a\n\x1b\u202e\udce9\ud800") == "a%0A%1B%E2%80%AE%E9%ED%A0%80"


@given(st.text(st.sampled_from("ab #>*-`_=.\x00\t\r\n\x85\u2028\u00a0ü")), st.integers(4, 12))
def test_the_first_line_is_the_same_whatever_follows_it(text: str, limit: int) -> None:
    line = first_line(text, limit)
    assert first_line(text + "\n", limit) == line  # the short way for one line agrees with the long one
    assert first_line(text + "\nmore", limit) == (line or "more")
    assert len(line) <= limit
    assert line == one_line(line).strip()


def test_one_line_shows_a_space_for_each_unprintable_character() -> None:
    assert one_line("a\x1b[1m\n\u202eb\ud800") == "a [1m  b "
    assert len(one_line(EVERYTHING)) == len(EVERYTHING)
    assert one_line(EVERYTHING).isprintable()


def test_an_excerpt_is_short_printable_and_says_when_it_is_cut() -> None:
    assert excerpt("é\n\x1b") == "'é\\n\\x1b'"
    assert excerpt("x" * 61) == "'" + "x" * 60 + "'…"


@given(st.text())
def test_every_excerpt_is_printable(text: str) -> None:
    assert excerpt(text).isprintable()
    assert len(excerpt(text)) <= 60 * 10 + 3


def test_no_line_of_a_blockquote_is_unmarked() -> None:
    assert blockquote("Its error", "one\ntwo\r\n\u2028three\x0bfour") == "Its error:\n> one\n> two\n>\n> three\n> four"


@given(st.text())
def test_what_is_safe_is_left_alone(text: str) -> None:
    for sanitize in (storable_text, storable_line, for_file_name, one_line, for_drawing):
        once = sanitize(text)
        if sanitize is not for_drawing:
            assert sanitize(once) == once
        once.encode()  # nothing that is left is a lone surrogate


@pytest.mark.parametrize("sanitize", [storable_text, storable_line, *SHOWN], ids=lambda one: one.__name__)
def test_a_long_hostile_text_takes_linear_time(sanitize: Callable[[str], str]) -> None:
    """CPU time, whatever else the machine does: linear takes 0.1 s, quadratic many minutes."""
    hostile = "\x1b[2J\u202e\ud800\n \t" * 30_000
    started = time.process_time()
    sanitize(hostile)
    assert time.process_time() - started < 20
