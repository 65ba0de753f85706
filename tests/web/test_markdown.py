"""What an agent wrote in Markdown becomes a few harmless elements, whatever it wrote."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.surfaces.web.markdown import MAX_CHARACTERS, markdown

ELEMENTS = {
    "p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong", "s", "hr", "br", "div",
    "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTRIBUTES = {("pre", "tabindex"), ("pre", "class"), ("ol", "start")} | {
    ("div", name) for name in ("class", "role", "aria-label", "tabindex")
}


class _Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[tuple[str, str]] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {(tag, name) for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


_PARTS = [
    "# ", "#### ", "- ", "3. ", "> ", "**", "_", "~~", "`", "```py\n", "\n", "\n\n", "    ", "|a|b|\n|-|-|\n", "| c |",
    "a", "[x](https://evil.example/?q)", "![x](//evil.example/x.png)", "<https://evil.example>",
    "[r]: https://evil.example\n", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))", "&lt;b&gt;", "&#x202e;", "\u202e", "\x1b[31m", '"', "'", "\\", "{{7*7}}",
]  # fmt: skip


@given(st.lists(st.sampled_from(_PARTS) | st.text(max_size=8), max_size=30).map("".join))
def test_only_harmless_elements_come_out(text: str) -> None:
    seen = _Seen(str(markdown(text)))
    assert set(seen.tags) <= ELEMENTS
    assert seen.attributes <= ATTRIBUTES
    assert "\u202e" not in seen.text
    assert "\x1b" not in seen.text


def test_a_report_looks_like_one() -> None:
    text = "# Q3\n\nIt **grew**.\n\n#### Deep\n\n- a\n- b\n\n| m | n |\n|---|---|\n| 1 | 2 |\n\n```sh\nls <x>\n```\n"
    seen = _Seen(str(markdown(text)))
    assert [tag for tag in seen.tags if tag in ("h3", "h4", "strong", "li", "td", "pre")] == [
        "h3", "strong", "h4", "li", "li", "td", "td", "pre",
    ]  # fmt: skip
    assert "ls <x>" in seen.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[the source](https://evil.example/a)", "the source (https://evil.example/a)"),
        ("![chart](https://evil.example/c.png)", "!chart (https://evil.example/c.png)"),
        ("[click](javascript:alert(3))", "[click](javascript:alert(3))"),
        ("[r]: https://evil.example 'title'", "[r]: https://evil.example 'title'"),
        ("<b>&amp;</b>", "<b>&amp;</b>"),
    ],
)
def test_what_would_lead_elsewhere_or_be_hidden_is_text(text: str, shown: str) -> None:
    seen = _Seen(str(markdown(text)))
    assert "a" not in seen.tags
    assert seen.text.strip() == shown


def test_a_long_text_is_shown_as_it_is() -> None:
    assert markdown("# a\n" * MAX_CHARACTERS).startswith('<pre class="text" tabindex="0"># a')
