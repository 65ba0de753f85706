"""Foreign text made harmless, one function for each purpose. No other module has a sanitizer of its own.

    stored     storable_text      line ends become \\n; NUL and lone surrogates become U+FFFD
               storable_line      one line; control, zero-width and direction characters are removed
    shown      for_terminal       keeps lines and tabs; everything else unprintable becomes an escape such as \\x1b
               for_page           the same rule, before the template escapes HTML
               for_field          the same in a field of a form, where spaces and joiners of words stay what they are
               for_log            one line of a log file: lines and tabs become escapes too
               for_preview        one line of what a person approves: nothing in it may be invisible
               for_drawing        XML text: unprintable characters become U+FFFD
               for_file_name      a file name: each unsafe byte becomes %XX
    in a       one_line           each unprintable character becomes a space
    sentence   first_line         the first line with words in it, without markup, cut to a limit
               beyond_first_line  the whole text, where that line is not all of it
               excerpt            quoted and cut, for error messages
    in a text  blockquote         each line begins with `> `, below a line that names the source

Unprintable is what `str.isprintable` rejects: control characters, terminal escapes, direction overrides, line
separators, zero-width characters, surrogates. Every function takes any `str` and runs in linear time.
"""

from __future__ import annotations

import re
import unicodedata

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
_MARKDOWN = {ord(mark): f"\\{mark}" for mark in "\\|<>[]`*"}
_UNSAFE_IN_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def storable_text(text: str) -> str:
    """`text` as files and the database can hold it: line ends as `\\n`, U+FFFD for NUL and lone surrogates.

    Idempotent.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and "\0" not in text:  # the common case; the pattern looks at each character
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def storable_line(text: str) -> str:
    """`text` on one line: runs of white space become one space; control, zero-width and direction characters go.

    They are removed rather than replaced: a title or heading has no use for them. Idempotent.
    """
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return " ".join(_INVISIBLE.sub("", line).split())


def for_terminal(text: str) -> str:
    """`text` for a terminal: lines and tabs stay, every other unprintable character becomes a backslash escape."""
    return _escaped(text, keep="\n\t")


def for_page(text: str) -> str:
    """`text` for a web page: lines and tabs stay, every other unprintable character becomes a backslash escape.

    HTML is not escaped; the template does that.
    """
    return _escaped(text, keep="\n\t")


def for_field(text: str) -> str:
    """`text` to be edited and sent again: as `for_page`, but spaces and what joins letters and emoji stay.

    Line ends become newlines: in a field they are nothing else.
    """
    text = storable_text(text)
    return text if text.isprintable() else "".join(map(_in_field, text))


def for_log(text: str) -> str:
    """`text` on one line of a log: every unprintable character, newlines included, becomes a backslash escape."""
    return text if text.isprintable() else _escaped(text)


def for_preview(text: str) -> str:
    """`text` on one line of an approval preview: every unprintable character becomes a backslash escape."""
    return _escaped(text)


def for_drawing(text: str) -> str:
    """`text` escaped for XML: newlines and tabs become spaces, other unprintable characters U+FFFD."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " if char in "\n\t" else "\ufffd" for char in text)
    import html  # 0.3 MB, of names of characters

    return html.escape(text)


def for_file_name(name: str) -> str:
    """`name` with each byte of an unsafe character as %XX. At most nine times as long; a safe name is unchanged.

    Unsafe are control characters, line separators, direction overrides, and the surrogates by which Python shows
    bytes that are not UTF-8.
    """
    return _UNSAFE_IN_NAME.sub(_percent, name)


def for_table(text: str) -> str:
    """`text` in a cell of a Markdown table: on one line, and nothing in it is a cell, a link or HTML."""
    return (text if text.isprintable() else one_line(text)).translate(_MARKDOWN)


def one_line(text: str) -> str:
    """`text` with a space for each unprintable character."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def first_line(text: str, limit: int = 200) -> str:
    """The first line that has words, on one line and without Markdown marks before it; empty if there is none.

    At most `limit` characters; a cut ends in an ellipsis.
    """
    if len(text) <= limit and text[:1].isalnum() and text.isprintable():  # the common case: one line
        return text.rstrip()
    for raw in text.splitlines():
        line = one_line(raw).strip().lstrip("#>*- ").strip()
        if line and set(line) - set("`-=_*"):
            return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
    return ""


def beyond_first_line(text: str) -> str:
    """The whole text if it says more than its `first_line`, else nothing."""
    return "" if first_line(text) == text.strip() else text.strip()


def excerpt(text: str, limit: int = 60) -> str:
    """The first `limit` characters of `text` in quotes, on one line, with everything unprintable escaped."""
    return repr(text) if len(text) <= limit else repr(text[:limit]) + "…"


def blockquote(source: str, text: str) -> str:
    """`text` below the line `source:`, each line beginning with `> `, so that none can pass for one of mailboxd's.

    `source` is one trusted line. Lines end wherever any reader might see a line end.
    """
    lines = text.strip().splitlines()
    return "\n".join([f"{source}:", *(f"> {line}".rstrip() for line in lines)])


def _escaped(text: str, keep: str = "") -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def _in_field(char: str) -> str:
    keeps = char.isprintable() or char in "\n\t\u200c\u200d" or unicodedata.category(char) == "Zs"
    return char if keeps else _escape(char)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def _percent(found: re.Match[str]) -> str:
    char = found.group()
    undecodable = "\udc80" <= char <= "\udcff"  # one byte of a name that is not UTF-8, as Python shows it
    raw = char.encode("utf-8", "surrogateescape" if undecodable else "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in raw)
