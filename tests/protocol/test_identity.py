"""The role of an agent in its IDENTITY.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.formats.mailbox.identity import theme_of

TEMPLATE = """\
# IDENTITY.md - Who Am I?

_Fill this in during your first conversation. Make it yours._

- **Name:**
  _(pick something you like)_
- **Creature:** {creature}
- **Vibe:** {vibe}
"""


@pytest.mark.parametrize(
    ("text", "theme"),
    [
        (TEMPLATE.format(creature="", vibe=""), ""),
        (TEMPLATE.format(creature="_(AI? robot?)_", vibe="dry"), "dry"),
        (TEMPLATE.format(creature="a heron", vibe="dry"), "a heron"),
        ("- Name: Bea\n- Theme: writes short reports\n- Creature: heron", "writes short reports"),
        ("* **theme**: checks sources", "checks sources"),
        ("# Bea\n\nBea edits *everything*.\nAnd more.", "Bea edits *everything*."),
        ("", ""),
        ("- Theme: one\u202e\x1b[31m two", "one[31m two"),
    ],
)
def test_the_role_is_read_as_openclaw_prefers_it(text: str, theme: str) -> None:
    assert theme_of(text) == theme


@given(st.text())
def test_any_text_is_one_short_line(text: str) -> None:
    said = theme_of(f"- Theme: {text}")
    assert len(said) <= 200
    assert "\n" not in said
    assert len(theme_of(text)) <= 200
