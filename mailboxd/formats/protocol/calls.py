"""Calls of tools that a model wrote as text, in the notation of any family: nothing was carried out.

A text is a call if it is nothing but calls, or ends with one behind prose that goes no further. What can be nothing
else is known by its marks (`<tool_call>`, `[TOOL_CALLS]`, `<|tool_call_begin|>`). JSON, an element like `<read_file>`
and a line like `read_file(path="a.md")` could be data, a document or code; they count by their names and arguments.
Fenced code is somebody's example, unless the text says that it is about to call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from mailboxd.formats.protocol.forms import THOUGHTS
from mailboxd.formats.protocol.markdown import fenced
from mailboxd.formats.protocol.residue import block_around
from mailboxd.formats.protocol.words import spelled

_LONGEST = 20_000
"""Characters of a text whose end is looked at."""
_LONGEST_SOFT = 4_000
"""Characters of what is a call only by its names and arguments."""
_MOST_PROSE = 700

_MARK = (
    r"(?:<[|\uff5c]?(?:[\w-]{1,20}:)?(?:[a-z]{1,20}_)?(?:tool|function)s?[_\u2581-]?(?:call|use[ >_]|code|request|invo|"
    r"results?>|responses?>)"
    r"|<(?:[\w-]{1,20}:)?invoke[ >]|<function=|<parameter=|</?arg_(?:key|value)>"
    r"|<\|(?:python_tag|plugin|action_start|recipient)\|>|<\|(?:start|channel)\|>[^\n]{0,40}\bto=|(?:assistant)?"
    r"commentary to=functions|\[(?:TOOL_CALLS?|TOOL_REQUEST|FUNCTION_CALLS?)\]|functools\[|\u273fFUNCTION\u273f)"
)
_MARKED = re.compile(rf"\A(?:{_MARK}|```tool_(?:code|call))", re.IGNORECASE)
_LATE_MARK = re.compile(
    rf"^{_MARK}|(?:<[|\uff5c]tool[_\u2581]calls?[_\u2581]|\[TOOL_CALLS\])(?=[^\n{{]{{0,200}}\{{)",
    re.IGNORECASE | re.MULTILINE,
)
"""A mark on a new line; or, for special tokens, which follow the last word, before the arguments."""
_REACT = re.compile(
    r"^[*_]{0,2}action(?: input)?:[*_]{0,2}[ \t]*\S[^\n]*\n+[*_]{0,2}action input:", re.MULTILINE | re.IGNORECASE
)
_TOOL_AND_INPUT = re.compile(
    r"\A(?:tool|function)(?: name)?:[ \t]*[\w.-]{1,80}[ \t]*\n+(?:tool |function )?(?:input|args|arguments|"
    r"parameters):",
    re.IGNORECASE,
)
_LAST_ACTION = re.compile(r"[*_]{0,2}action(?: \d{1,3})?:[*_]{0,2}[ \t]*[\w.-]{1,80}[ \t]*(?P<input>[\[(].*[\])])?")
_THOUGHT = re.compile(r"[*_]{0,2}thought(?: \d{1,3})?:", re.IGNORECASE)

_VERBS = (
    r"(?:read|write|create|list|search|find|execute|exec|run|open|edit|delete|remove|replace|apply|insert|view|fetch|"
    r"get|browse|browser|call|invoke|use|access|ask|send|load|save|update|append|move|copy|download|upload|check|query|"
    r"grep|switch|attempt|submit|str_replace|web|new|make|mcp)"
)
_OBJECTS = (
    r"(?:files?|commands?|bash|i?python|code|shell|terminal|url|page|web|website|browser|director(?:y|ies)|dir|folder|"
    r"tool|mcp_tool|mcp_resource|contents?|diff|patch|question|followup_question|completion|notebook|todo_list|mode|"
    r"task|memory|document|sql|script|tests?|action|editor|in_file|to_file|code_definition_names|search|fetch|ipython)"
)
_TOOL = re.compile(rf"{_VERBS}_(?:\w{{1,20}}_)?{_OBJECTS}", re.IGNORECASE)
"""A name that only a tool has, as an element of XML: `read_file`, but not `search_results`."""
_ACTS = re.compile(rf"(?:\w{{1,40}}\.)?{_VERBS}_\w{{1,40}}", re.IGNORECASE)
_ELEMENT = re.compile(r"<([A-Za-z][\w-]{1,40})((?:[ \t]+[\w-]{1,40}=\"[^\"<>\n]{0,400}\")*)[ \t]*(/?)>")
_ELEMENTS = frozenset({"tool", "tool_name", "action", "bash", "shell", "terminal", "execute", "search"})
"""Single words that are the element of a call, if the text is short."""

_CALL_TYPES = frozenset({"function", "tool_use", "tool_call", "function_call", "tool_request"})
_NAMES = ("name", "tool", "tool_name", "function", "function_name", "action", "recipient_name", "command")
_INPUTS = frozenset(
    {"arguments", "parameters", "args", "input", "tool_input", "action_input", "params", "kwargs", "tool_args"}
)
_BESIDE = THOUGHTS | {"id", "type", "index", "call_id", "tool_call_id", "namespace", "role"}
"""Keys that a call may have beside its name and its arguments."""
_ARGUMENTS = frozenset(
    {
        "path",
        "file",
        "file_path",
        "filepath",
        "filename",
        "command",
        "cmd",
        "query",
        "url",
        "code",
        "content",
        "pattern",
    }
    | {"directory", "dir", "prompt", "expression", "city", "location", "regex", "recursive"}
)
"""Names that arguments of tools have."""
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.:/-]{0,80}")
_CUT = re.compile(
    r"\[?\s*\{\s*\"(?:name|tool|tool_name|function|recipient_name)\"\s*:\s*(?:\"[\w.-]{1,80}\"|\{[^{}]{0,80})"
    r"\s*,\s*\"(?:arguments|parameters|args|input|tool_input|action_input|params)\"\s*:",
    re.IGNORECASE,
)
"""A call in JSON that is cut off, or followed by another."""
_LITERAL = r"(?:\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|[\w.+-]++|\[[^\[\]()]{0,400}+\]|\{[^{}()]{0,400}+\})"
_FUNCTION = re.compile(
    rf"(?:print\()?+(?P<name>[a-z_][\w.]*+)\(\s*+(?P<args>(?:(?:\w++\s*+=\s*+)?+{_LITERAL}\s*+(?:,\s*+|(?=\))))*+)\)++"
)
_KEYWORD = re.compile(r"(?:\A|,)\s*(\w{1,40})\s*=")
_NAMESPACE = re.compile(r"(?:print\()?(?:functions|tools|default_api)\.\w{1,60}\(|\w{1,60}\.call\(")
_EXAMPLE = re.compile(r"[:\uff1a]\W*\Z")
_MINE = re.compile(r"\b(?:i|i'll|i'm|we|let me|let's|ich|je|yo|eu|io|я)\b|我|私", re.IGNORECASE)
_PLAIN = re.compile(r"^(?:#{1,6}[ \t]|```|~~~|[^\n]+\n(?:===|---))", re.MULTILINE)
_CALLS = re.compile("[<\\[({:=\u273f]")
"""Every call has one of these marks."""


def is_call(text: str) -> bool:
    """Whether `text`, a cleaned answer, is nothing but calls of tools, or ends with one."""
    if not _CALLS.search(text):
        return False
    if _MARKED.match(text) or _NAMESPACE.match(text) or _is_soft(text):
        return True
    if len(text) > _LONGEST:
        return False
    inner, language = block_around(text)
    if language.casefold() in ("", "json", "xml") and inner != text and _is_soft(inner.strip()):
        return True
    return _ends_marked(text) or _ends_react(text) or _ends_soft(text)


def _ends_marked(text: str) -> bool:
    """Whether the text ends with a call in marks, outside fenced code and no example in a document."""
    mark = _LATE_MARK.search(text)
    if mark is None or _PLAIN.search(text, 0, mark.start()):
        return False
    rest = text[mark.start() :].strip()
    closed = rest.endswith((">", "]", "}", "```"))
    return closed and ("\n\n" not in rest or rest.rpartition("\n")[2].startswith(("<", "[")))


def _ends_react(text: str) -> bool:
    """Whether the text ends with `Action:` and its input, by which ReAct agents call."""
    if "```" in text:
        return False
    if _REACT.search(text) or _TOOL_AND_INPUT.match(text):
        return True
    last = text.rstrip().rpartition("\n")[2]
    found = _LAST_ACTION.fullmatch(last.strip().casefold())
    return found is not None and bool(found["input"] or _THOUGHT.match(text))


def _ends_soft(text: str) -> bool:
    """Whether the last part of the text is a call by its names, behind a little prose that does not call it an example.

    In fenced code it is one only if the prose is about what its author does next.
    """
    lines = text.split("\n")
    inside, unclosed = fenced(lines)
    if unclosed is not None:
        return False
    start = _last_part(lines, inside)
    prose, rest = "\n".join(lines[:start]).strip(), "\n".join(lines[start:]).strip()
    if not prose or len(prose) > _MOST_PROSE or _PLAIN.search(prose):
        return False
    mine = _MINE.search(prose) is not None
    if rest.startswith(("```", "~~~")):
        return mine and _is_soft(block_around(rest)[0].strip())
    return (mine or not _EXAMPLE.search(prose)) and _is_soft(rest)


def _last_part(lines: list[str], inside: list[bool]) -> int:
    """The line on which the last part begins: the first element of a tool, the last block, or the last paragraph."""
    for at, line in enumerate(lines):
        if line.startswith("<") and not inside[at] and _element(line) is not None:
            return at
    for at in range(len(lines) - 1, 0, -1):
        if not inside[at - 1] and (inside[at] or not lines[at - 1].strip()):
            return at
    return 0


def _is_soft(text: str) -> bool:
    if text.startswith(("{", "[{")) or text.startswith("["):
        return _in_json(text) or _in_python(text)
    return _in_elements(text) if text.startswith("<") else _in_python(text)


# Elements of XML


def _element(text: str) -> re.Match[str] | None:
    found = _ELEMENT.match(text)
    return found if found and (_TOOL.fullmatch(found[1]) or found[1] in _ELEMENTS) else None


def _in_elements(text: str) -> bool:
    """Whether the text is one element that has the name of a tool, or several."""
    first = _element(text)
    if first is None or (first[1] in _ELEMENTS and (first[2] or len(text) > _MOST_PROSE)):
        return False
    if first[3]:
        return first.end() == len(text)
    return f"</{first[1]}>" in text and text.endswith(">")


# JSON


def _in_json(text: str) -> bool:
    if len(text) > _LONGEST:
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _CUT.match(text) is not None
    return _calls(value)


def _calls(value: object) -> bool:
    """Whether a value of JSON is a call, or a list of them."""
    if isinstance(value, list):
        return 0 < len(value) <= 50 and all(isinstance(one, dict) and _calls(one) for one in value)
    if not isinstance(value, dict):
        return False
    keys = {spelled(str(key)): one for key, one in value.items()}
    if keys.get("method") == "tools/call" or keys.get("tool_calls"):
        return True
    if isinstance(inner := keys.get("function_call", keys.get("function")), dict):
        return "name" in inner and not _defines(inner)
    name = next((keys[key] for key in _NAMES if key in keys), None)
    given = [key for key in keys if key in _INPUTS]
    if isinstance(name, str) and _IDENTIFIER.fullmatch(name) and not _defines(keys):
        if keys.get("type") in _CALL_TYPES:
            return True
        if given and keys.keys() <= {*_NAMES, *_INPUTS, *_BESIDE}:
            return any(isinstance(keys[key], (dict, str)) for key in given)
        acts = "tool" in keys or "tool_name" in keys or ("action" in keys and _ACTS.fullmatch(name) is not None)
        return acts and not _ARGUMENTS.isdisjoint(keys) and not any(isinstance(one, dict) for one in keys.values())
    if len(keys) != 1:
        return False
    ((only, inner),) = keys.items()
    return _TOOL.fullmatch(only) is not None and isinstance(inner, dict) and not _ARGUMENTS.isdisjoint(inner)


def _defines(call: Mapping[str, object]) -> bool:
    """Whether what looks like a call says what a tool is: it has a description, or the schema of its arguments."""
    inputs = [one for key, one in call.items() if key in _INPUTS]
    return "description" in call or any(isinstance(one, dict) and "properties" in one for one in inputs)


# Python


def _in_python(text: str) -> bool:
    """Whether the text is nothing but calls of functions that have the names, or the arguments, of tools."""
    if len(text) > _LONGEST_SOFT or not text.endswith((")", "]")):
        return False
    listed = text.startswith("[") and text.endswith("]")
    at, end, found = int(listed), len(text) - int(listed), 0
    while at < end:
        call = _FUNCTION.match(text, at, end)
        if call is None or not _is_tool(call):
            return False
        at, found = call.end(), found + 1
        while at < end and text[at] in ",; \t\n":
            at += 1
    return found > 0


def _is_tool(call: re.Match[str]) -> bool:
    names = _KEYWORD.findall(call["args"])
    if not names:
        return _TOOL.fullmatch(call["name"]) is not None and bool(call["args"])
    return _ACTS.fullmatch(call["name"]) is not None or not _ARGUMENTS.isdisjoint(names)
