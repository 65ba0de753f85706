"""What a stand-in agent understands of a message: who asks for what. Read leniently, it decides nothing here."""

from __future__ import annotations

import re

_HEADER_LINE = re.compile(r"\[mailboxd\] (\S[^·\n]*?) turn · task (\S+) · attempt (\d+)")
_FRONT_MATTER = re.compile(r"---\r?\n(.*?\r?\n)---[ \t]*\r?(?:\n|\Z)", re.DOTALL)
_KEY = re.compile(r"([A-Za-z_]\w*):[ \t]*(.*)")
_TASK = re.compile(r"^# Task: *(.+)$", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_SECTION = re.compile(r"^## +(.+?) *\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


class Message:
    """A message as its receiver sees it: our fixed first line, or the front matter of a protocol message, or both."""

    def __init__(self, text: str) -> None:
        self.text = text
        first = _HEADER_LINE.match(text)
        rest = text[first.end() :].lstrip() if first else text
        front = _FRONT_MATTER.match(rest)
        self.headers = dict(_headers(front[1])) if front else {}
        self.envelope = rest if self.headers.get("type") else ""
        """The protocol message in it, from its front matter on; empty if there is none."""
        task, subtask = self.headers.get("task_id", ""), self.headers.get("subtask_id", "")
        self.local_id = first[2] if first else f"{task}.{subtask}" if subtask else task
        self.kind = first[1] if first else self.headers.get("type", "")
        self.attempt = first[3] if first else self.headers.get("attempt", "")
        self.task_id = task or self.local_id
        self.subtask_id = subtask

    def values(self) -> dict[str, str]:
        """What a reply may refer to as `{name}`: headers, sections (`{expected_output}`), and these few."""
        sections = {_slug(found[1]): found[2].strip() for found in _SECTION.finditer(self.text)}
        title = _TASK.search(self.text) or _TITLE.search(self.text)
        known = {"task_id": self.task_id, "subtask_id": self.subtask_id, "local_id": self.local_id}
        known |= {"kind": self.kind, "attempt": self.attempt, "title": title[1].strip() if title else ""}
        return {**sections, **self.headers, **known}

    def fill(self, text: str) -> str:
        """`text` with its known `{names}` replaced; other braces stay as they are, and nothing is replaced twice."""
        values = self.values()
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def _headers(block: str) -> list[tuple[str, str]]:
    found = [_KEY.match(line) for line in block.splitlines()]
    return [(key[1], key[2].strip().strip("'\"")) for key in found if key]


def _slug(heading: str) -> str:
    return re.sub(r"\W+", "_", heading.strip().lower())
