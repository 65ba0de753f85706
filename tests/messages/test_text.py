"""The two normal forms, character by character: the short way for what is mostly written is the long way's result."""

from __future__ import annotations

import sys

from mailboxd.protocol.markdown import clean, one_line

GONE = [range(0x00, 0x20), range(0x7F, 0xA0), [0x200B, 0x200E, 0x200F], range(0x202A, 0x202F), range(0x2060, 0x206A),
        [0xFEFF, 0xFFFE, 0xFFFF], range(0xD800, 0xE000)]  # fmt: skip
NOWHERE = {code for codes in GONE for code in codes}
UNSTORABLE = {0, *range(0xD800, 0xE000)}


def test_each_character_stays_in_a_line_goes_or_is_white_space() -> None:
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        kept = one_line(f"a{letter}b")
        assert kept == ("a b" if letter.isspace() else "ab" if code in NOWHERE else f"a{letter}b"), hex(code)


def test_each_character_can_be_stored_in_a_text() -> None:
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        wanted = "\n" if letter == "\r" else "\ufffd" if code in UNSTORABLE else letter
        assert clean(letter) == wanted, hex(code)


def test_what_is_removed_leaves_no_white_space_behind() -> None:
    assert one_line(" a \u200b b\t\tc \x1b") == "a b c"
    assert one_line("  plain   words ") == "plain words"
    assert clean("one\r\ntwo\rthree\0") == "one\ntwo\nthree\ufffd"
