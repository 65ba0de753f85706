"""The form of an answer: headers and a body, however it is spelled.

A form is front matter with sections below it, the same lines without `---`, or a JSON object. Keys are taken in any
spelling of `protocol.words`. What else has front matter or keys is a document or data of its own, and no form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.errors import MessageError
from mailboxd.formats.protocol import words
from mailboxd.formats.protocol.front_matter import DECLARATIONS
from mailboxd.formats.protocol.messages import MESSAGE_TYPES
from mailboxd.formats.protocol.strict_yaml import Yaml, load, repaired

PATH = "answer"
MAX_LINES = 1000
MAX_JSON = 4 * 1024 * 1024
MAX_DEPTH = 64
TYPES = {
    **{name: name for name in ("reply", "plan", "question", "ack", "review")},
    **dict.fromkeys(("result", "results", "response", "report"), "reply"),
    **dict.fromkeys(("dag", "subtasks"), "plan"),
    **dict.fromkeys(("clarification", "clarifying_question"), "question"),
    **dict.fromkeys(("acknowledgement", "acknowledgment", "acknowledge", "acknowledged"), "ack"),
    "code_review": "review",
}
"""The types that an answer may have, by their spellings. `answer`, `task`, `approval` and `steer` are none of them: who
answers cannot give orders."""
PARTIAL = frozenset(
    {"partial", "partially_done", "partially_completed", "incomplete", "partial_success", "mostly_done"}
)
_BODY = {
    **dict.fromkeys(("text", "content", "body", "message", "response", "reply", "note", "notes"), "text"),
    **dict.fromkeys(("dag", "plan"), "plan"),
    **dict.fromkeys(("final_answer", "decision", "my_answer"), "answer"),
    "summary": "summary",
    "synthesis": "synthesis",
}
"""Keys for parts of the body that only answers have, beside those of `words.KEYS`."""
THOUGHTS = frozenset(
    {"reasoning", "thinking", "thought", "thoughts", "analysis", "rationale", "explanation", "confidence", "scratchpad"}
    | {"chain_of_thought", "reason_for_answer", "justification", "because"}
)
"""Keys under which models in JSON mode explain themselves."""
_SUCCEEDED = frozenset({"success", "succeeded", "successful", "ok"})
"""Keys by whose truth models in JSON mode say their status."""
OPTIONS = frozenset({"options", "choices"})
"""Keys for the answers that a question offers, which belong to its text."""
_HEADERS = frozenset(
    {*DECLARATIONS, *(name for kind in MESSAGE_TYPES.values() for name in kind.header_fields())}
    - {"agent", "depends_on"}  # they order and assign a task; an answer that has them is asked about
)
_PARTS = frozenset(
    {"type", "status", "verdict", "answer", "findings", "planned_actions", "results", "partial_results", "error"}
    | {"questions", "summary", "text", "plan", "subtasks", "synthesis", "failure", "title", "goal", "description"}
)
_DOCUMENT = frozenset(
    {
        "title",
        "date",
        "author",
        "authors",
        "layout",
        "slug",
        "permalink",
        "categories",
        "category",
        "version",
        "created",
    }
    | {
        "updated",
        "created_at",
        "updated_at",
        "deciders",
        "decision_makers",
        "sidebar_position",
        "name",
        "weight",
        "draft",
    }
    | {"published", "license", "description", "revision", "due", "deadline", "aliases", "lang", "language", "tags"}
)
"""Keys that a document has in front matter of its own."""
_OPENS = re.compile(r"(?:-{3,4}|\u2014{1,3}|\u2013{2,3}|\*{3}|_{3})[ \t]*")
_HEADING = re.compile(r"#{2,6}[ \t]+\S")
"""Below headers without `---`; a line that begins with one `#` may be a remark among them."""
_KEY = re.compile(r"[\"'*]{0,3}([A-Za-z_][A-Za-z0-9_ -]{0,40}?)[\"']?(?:\*\*)?[ \t]*:(?:\*\*)?[ \t\u00a0]*(.*)")
_REMARK = re.compile(r"(?:^|[ \t]+)#.*")
_FENCED = re.compile(r"(?:`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Form:
    """Headers by their names in `words`, as text, and the body. `lines` and `body_line` count in the answer."""

    headers: Mapping[str, Yaml]
    written: Mapping[str, str] = field(default_factory=dict)
    """The names as the agent wrote them."""
    lines: Mapping[str, int] = field(default_factory=dict)
    body: str = ""
    body_line: int = 1
    source: str = ""
    """The text of the headers, or the JSON object."""
    twice: tuple[str, ...] = ()
    """Headers that stand there twice, with different values."""
    typed: Mapping[str, object] = field(default_factory=dict)
    """The values of a JSON object with their types."""

    def word(self, name: str) -> str:
        """The value of a header as one word; empty if it is absent or no text."""
        value = self.headers.get(name, "")
        return words.spelled(value.strip(" *`\"'.!")) if isinstance(value, str) else ""

    def text(self, name: str) -> str:
        """The value of a header as text: a list as bullets, a mapping as JSON."""
        value = self.typed.get(name, self.headers.get(name, ""))
        if isinstance(value, str):
            return value.strip()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return "\n".join(f"- {item}" for item in value)
        return "" if value in (None, [], {}) else json.dumps(value, ensure_ascii=False, indent=2)

    @property
    def kind(self) -> str:
        """The type, by its spellings; empty if it is none of an answer."""
        return TYPES.get(self.word("type"), "")

    @property
    def status(self) -> str:
        """`done`, `failed`, or empty."""
        return words.STATUS.get(self.word("status"), "")

    def quoted(self, name: str) -> str:
        """The line of a header, for a sentence about it."""
        line = self.lines.get(name)
        value = self.headers.get(name, "")
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        said = excerpt(storable_line(f"{self.written.get(name, name)}: {shown}"), 160)[1:-1]
        return f"line {line}, `{said}`" if line else f"`{said}`"

    def unknown(self) -> tuple[str, ...]:
        """Headers that no answer has, in the names of the agent."""
        own = _HEADERS | _PARTS | words.IDLE | THOUGHTS | (OPTIONS if self.kind == "question" else frozenset())
        return tuple(self.written[name] for name in self.headers if name not in own and not name.startswith("x_"))


def name_of(key: str) -> str:
    """The name of a header that is written as `key`."""
    word = words.spelled(key)
    if word in _BODY:
        return _BODY[word]
    return word if word in _HEADERS or word in THOUGHTS else words.KEYS.get(word, word)


def may_begin(lines: list[str], start: int) -> bool:
    """Whether the lines from `start` to the next blank or `---` hold a type or a status that answers have."""
    for line in lines[start : start + MAX_LINES]:
        if not line.strip() or line.strip().startswith(("---", "—")):
            return False
        found = _KEY.fullmatch(line.rstrip())
        if found is None:
            continue
        word = words.spelled(_REMARK.sub("", found[2]).strip(" *\"'"))
        if {"type": word in TYPES, "status": word in words.STATUS}.get(name_of(found[1]), False):
            return True
    return False


def fronted(lines: list[str], start: int = 0) -> tuple[Form, int] | None:
    """The form whose front matter begins at `lines[start]`, or the plain lines of one there, and the line of its body.

    None if there are no such lines. Raises MessageError if they look like those of a form and are invalid YAML.
    """
    if start >= len(lines):
        return None
    fence = _OPENS.fullmatch(lines[start].strip()) is not None
    begin = start + 1 if fence else start
    if not fence and not _KEY.fullmatch(lines[start].rstrip()):
        return None
    end = begin
    closed = False
    while end < min(len(lines), begin + MAX_LINES):
        line = lines[end].rstrip()
        if fence and _OPENS.fullmatch(line.strip()) and end > begin:
            closed = True
            break
        if not fence and not line.strip() and not _goes_on(lines, begin, end):
            break
        if not fence and _HEADING.match(line) and end > begin:
            break
        end += 1
    if fence and not closed:  # it ends at the first blank line, or at the first heading
        end = begin
        while end < len(lines) and lines[end].strip() and not lines[end].startswith("#") and end < begin + MAX_LINES:
            end += 1
    header = lines[begin:end]
    body = end + 1 if closed else end
    if not header or not any(_KEY.fullmatch(line.rstrip()) for line in header):
        return None
    keys = {name_of(found[1]): found[2] for line in header if (found := _KEY.fullmatch(line.rstrip()))}
    if not _maybe(keys):
        return None
    try:
        loaded, numbers = _loaded(header, begin + 1)
    except MessageError:
        if not fence and TYPES.get(words.spelled(keys.get("type", ""))) is None:
            return None  # prose whose first words are followed by a colon
        raise
    form = _form(loaded, numbers, "\n".join(header))
    text = "\n".join(lines[body:])
    return _with_body(form, text, body + 1), body


def _goes_on(lines: list[str], begin: int, blank: int) -> bool:
    """Whether the subtasks or findings above a blank line, the last of the headers, go on below it."""
    after = next((line for line in lines[blank + 1 : blank + 20] if line.strip()), "")
    if not after.startswith((" ", "- ")):
        return False
    last = next(found for line in reversed(lines[begin:blank]) if (found := _KEY.fullmatch(line.rstrip())))
    return name_of(last[1]) in ("subtasks", "plan", "findings") and not _REMARK.sub("", last[2]).strip()


def mapping(text: str) -> Form | None:
    """The form that `text`, a whole JSON object, is; None if it is none. Invalid JSON may still be YAML."""
    if not text.startswith("{") or not text.rstrip().endswith("}") or len(text) > MAX_JSON:
        return None
    try:
        typed = json.loads(text)
    except (ValueError, RecursionError):
        try:
            found = load(text, path=PATH, max_events=100_000, max_depth=MAX_DEPTH)
        except MessageError:
            return None
        typed = found.value
    if not isinstance(typed, dict):
        return None
    typed = _with_status(typed)
    form = _form({str(key): _text(value) for key, value in typed.items()}, {}, text)
    names = {name_of(str(key)): value for key, value in typed.items()}
    return Form(form.headers, form.written, form.lines, "", 1, text, form.twice, names)


def _with_status(typed: dict[str, object]) -> dict[str, object]:
    """The object with a status in place of the one key that says in another word whether the work succeeded."""
    said = [key for key in typed if words.spelled(str(key)) in _SUCCEEDED]
    if len(said) != 1 or not isinstance(typed[said[0]], bool) or any(name_of(str(key)) == "status" for key in typed):
        return typed
    return {
        "status" if key == said[0] else key: ("done" if value else "failed") if key == said[0] else value
        for key, value in typed.items()
    }


def is_document(form: Form) -> bool:
    """Whether front matter is that of a document: its keys are not those of an answer, or it has keys of its own."""
    own = any(name in _DOCUMENT for name in _raw(form)) or any(name not in _HEADERS | _PARTS for name in form.headers)
    if form.kind:
        decided = form.status or form.word("verdict") or "subtasks" in form.headers
        return own and not decided and not re.search(r"\bsubtasks\b", form.body) and _titled(form)
    if form.status == "failed" or form.word("status") in PARTIAL:
        return False
    if form.status == "done" or words.VERDICTS.get(form.word("verdict")):
        return own
    if form.headers.get("type", "") != "" or "subtasks" in form.headers:
        return own or form.body.startswith("# ")
    return own or form.body.startswith("#") or not {"status", "verdict"} & form.headers.keys()


def _titled(form: Form) -> bool:
    return any(name in _DOCUMENT for name in _raw(form))


def _raw(form: Form) -> Iterable[str]:
    return map(words.spelled, form.written.values())


def _maybe(keys: Mapping[str, str]) -> bool:
    """Whether a line of front matter can be one of an answer."""
    return not keys.keys().isdisjoint({"type", "status", "verdict", "subtasks", "answer", "findings"}) or (
        bool(keys) and keys.keys() <= {"error", "results", "questions", "planned_actions", "decision"}
    )


def _form(values: Mapping[str, Yaml], lines: Mapping[str, int], source: str) -> Form:
    headers: dict[str, Yaml] = {}
    written: dict[str, str] = {}
    numbers: dict[str, int] = {}
    twice = []
    for key, value in values.items():
        name = name_of(key)
        if name in headers and value != headers[name]:
            if name in THOUGHTS or name in words.IDLE:
                continue
            if name in ("text", "title"):  # several parts of a body
                name = words.spelled(key)
            else:
                twice.append(f"`{written[name]}` and `{key}`")
                continue
        headers[name], written[name] = value, key
        if key in lines:
            numbers[name] = lines[key]
    return Form(headers, written, numbers, source=source, twice=tuple(twice))


def _with_body(form: Form, body: str, line: int) -> Form:
    blank = len(body) - len(body.lstrip("\n"))
    return Form(form.headers, form.written, form.lines, body.strip(), line + blank, form.source, form.twice, form.typed)


def _loaded(header: list[str], first_line: int) -> tuple[Mapping[str, Yaml], Mapping[str, int]]:
    """The mapping in these lines, after repairs that leave one reading: spaces, bold keys, a colon in a text."""
    try:
        return _mapping(header, first_line)
    except MessageError as error:
        fixed = repaired("\n".join(map(_unmarked, header)), of_headers=True).split("\n")
        if fixed == header:
            raise
        try:
            return _mapping(fixed, first_line)
        except MessageError:
            raise error from None


def _mapping(header: list[str], first_line: int) -> tuple[Mapping[str, Yaml], Mapping[str, int]]:
    loaded = load("\n".join(header), path=PATH, first_line=first_line, max_events=20_000, max_depth=MAX_DEPTH)
    if not isinstance(loaded.value, dict):
        raise MessageError("bad-yaml", "the headers are not a mapping", "Write `key: value` lines.", PATH, first_line)
    return loaded.value, {str(path[0]): line for path, line in loaded.lines.items() if len(path) == 1}


def _unmarked(line: str) -> str:
    """A line of headers without the marks of Markdown around its key and its value."""
    found = _KEY.fullmatch(line.rstrip())
    if found is None or line[:1] in " \t-":
        return line
    key, value = found.groups()
    return f"{key}: {value.strip().removesuffix('**').strip()}".rstrip()


def _text(value: object, depth: int = 0) -> Yaml:
    """A value of JSON as the text, lists and mappings of text that YAML gives."""
    if depth < MAX_DEPTH and isinstance(value, dict):
        return {str(key): _text(item, depth + 1) for key, item in value.items()}
    if depth < MAX_DEPTH and isinstance(value, list):
        return [_text(item, depth + 1) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
