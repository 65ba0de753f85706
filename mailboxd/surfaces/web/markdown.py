"""Markdown of agents as HTML: headings, lists, tables, quotes, code and emphasis, and nothing that leads elsewhere.

All of it is untrusted. HTML in it is text, links and images become text with their address, and what would not be seen
(entities, definitions of links, characters without width) is shown as it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape

from mailboxd.core.sanitize import for_page

MAX_CHARACTERS = 40_000
"""Longer texts are shown as they are: the worst of this length takes a second to parse."""
_HIGHEST = 3
"""The level of the first heading: the page has the two above."""


@lru_cache(maxsize=64)  # an open page is rendered again for every event
def markdown(text: str) -> Markup:
    """`text` as HTML."""
    shown = for_page(text)
    if len(shown) > MAX_CHARACTERS:
        return Markup('<pre class="text" tabindex="0">%s</pre>') % shown
    return Markup(_PARSER.render(shown))  # noqa: S704 - the renderer escapes, and makes only ELEMENTS


class _Renderer(RendererHTML):
    """HTML without attributes of the text's choosing."""

    @staticmethod
    def renderAttrs(token: Token) -> str:
        start = token.attrGet("start") if token.tag == "ol" else None
        return f' start="{int(start)}"' if start is not None else ""

    def link_open(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, _env: EnvType) -> str:
        tokens[_end(tokens, idx)].meta["address"] = tokens[idx].attrGet("href")
        return ""

    def link_close(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, _env: EnvType) -> str:
        return f" (<code>{escape(tokens[idx].meta['address'])}</code>)"

    def fence(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, _env: EnvType) -> str:
        return f'<pre tabindex="0"><code>{escape(tokens[idx].content)}</code></pre>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return self.fence(tokens, idx, options, env)

    def table_open(self, _tokens: Sequence[Token], _idx: int, _options: OptionsDict, _env: EnvType) -> str:
        return '<div class="wide" role="group" aria-label="Table" tabindex="0"><table>\n'

    def table_close(self, _tokens: Sequence[Token], _idx: int, _options: OptionsDict, _env: EnvType) -> str:
        return "</table></div>\n"


def _end(tokens: Sequence[Token], start: int) -> int:
    """The end of the link that begins at `start`; links do not nest."""
    return next(at for at in range(start, len(tokens)) if tokens[at].type == "link_close")


def _level_headings(state: Any) -> None:
    """Headings below those of the page, and none that skips a level."""
    last = _HIGHEST - 1
    for token in state.tokens:
        if token.type == "heading_open":
            last = min(int(token.tag[1]) + _HIGHEST - 1, last + 1, 6)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{last}"


_PARSER = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer)
_PARSER.enable(["table", "strikethrough"]).disable(
    ["image", "html_block", "html_inline", "reference", "autolink", "entity"]
)
_PARSER.core.ruler.push("level_headings", _level_headings)
