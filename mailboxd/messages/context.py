"""The upstream results that go into a dependant's Context: named, marked as data, and never cut in silence."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mailboxd.messages.quoting import quote_fence

_OURS = re.compile(r"^(?=[ \t]*\\*###[^\n]*\(from agent )", re.MULTILINE)
_ESCAPED = r"\\"


@dataclass(frozen=True, slots=True)
class Upstream:
    """The result of a child that another child, or the synthesis, builds on. `key` and `agent` are ids."""

    key: str
    agent: str
    text: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A result that did not fit whole. Sizes in bytes of UTF-8; `path` holds the whole, `sha256` is of the whole."""

    key: str
    size: int
    kept: int
    sha256: str
    path: str


@dataclass(frozen=True, slots=True)
class Carried:
    """What goes into the Context, and what of it was cut (for an event)."""

    text: str
    cuts: tuple[Cut, ...]


def carry(sources: Sequence[Upstream], budget_bytes: int, keep_path: Callable[[Upstream], str]) -> Carried:
    """The texts of `sources` in order, each under `### <key> (from agent <agent>)` and fenced as data.

    `budget_bytes` (0 or more) bounds the texts together, without headings and markers. Over it, what is short stays
    whole and the longest share the rest equally; each cut ends on a character and is followed by a marker with the
    original size, the sha256 and the file that holds the whole. `keep_path` names that file, and is asked only for
    texts that are cut.
    """
    raws = [source.text.encode("utf-8", "replace") for source in sources]
    parts: list[str] = []
    cuts: list[Cut] = []
    for source, raw, share in zip(sources, raws, _shares([len(raw) for raw in raws], budget_bytes), strict=True):
        origin = f"result of {source.key} from agent {source.agent}"
        text = raw[:share].decode("utf-8", "ignore")
        parts.append(f"### {source.key} (from agent {source.agent})\n\n{quote_fence(text, origin)}")
        if share < len(raw):
            cut = Cut(source.key, len(raw), len(text.encode()), hashlib.sha256(raw).hexdigest(), keep_path(source))
            cuts.append(cut)
            parts.append(_marker(cut))
    return Carried("\n\n".join(parts), tuple(cuts))


def concatenate(sources: Sequence[Upstream]) -> str:
    """The results one below the other, each under a heading that names its source, and none that could forge one.

    For a result that people read: it is not marked as data here, but whoever passes it on marks it as a whole.
    """
    parts = [
        f"### {source.key} (from agent {source.agent})\n\n{_OURS.sub(_ESCAPED, source.text)}" for source in sources
    ]
    return "\n\n".join(parts)


def _shares(sizes: Sequence[int], budget: int) -> list[int]:
    """Bytes for each text: all it needs while that is at most an equal part of what is left, else that part."""
    shares = [0] * len(sizes)
    left = max(budget, 0)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for waiting, index in zip(range(len(sizes), 0, -1), order, strict=True):
        shares[index] = min(sizes[index], left // waiting)
        left -= shares[index]
    return shares


def _marker(cut: Cut) -> str:
    return (
        f"[mailboxd] cut: {cut.kept} of {cut.size} bytes are shown. "
        f"The whole (sha256 {cut.sha256}) is in the file {cut.path}"
    )


def shorten(text: str, budget_bytes: int, keep: Callable[[], str]) -> tuple[str, Cut | None]:
    """`text`, or its beginning with a marker that names its size, hash and the file that `keep` put the whole into."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= budget_bytes:
        return text, None
    kept = raw[:budget_bytes].decode("utf-8", "ignore")
    cut = Cut("result", len(raw), len(kept.encode()), hashlib.sha256(raw).hexdigest(), keep())
    return f"{kept}\n\n{_marker(cut)}", cut
