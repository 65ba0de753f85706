"""What models and their servers leave around an answer: thoughts, special tokens, calls of tools, one outer fence.

Only the two ends of a text are cleaned, and nothing inside fenced code: an answer may be about these marks. Every
pattern begins with a literal and is bounded, so that cleaning takes linear time.
"""

from __future__ import annotations

import re

from mailboxd.formats.protocol.markdown import fenced

INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060 \t\r\n"
"""Characters around an answer that nobody sees."""

_TOKEN = re.compile(
    r"<[|\uff5c](?!/?tool|python_tag|plugin|action_)[^<>|\uff5c\n]{1,60}[|\uff5c]>|</?s>|<[be]os>|\[/?INST\]|<(?:end|"
    r"start)_of_turn>(?:model\b)?",
    re.IGNORECASE,
)
SILENT_TOKENS = frozenset({"HEARTBEAT_OK", "NO_REPLY"})
"""OpenClaw's words for no answer. On a line of their own above or below an answer they are no part of it."""
_SPEAKER = re.compile(r"\A(?:assistant|model)(?=[ \t]*\n|<\|)", re.IGNORECASE)
_FINAL = "<|channel|>final<|message|>"
_JOINED = re.compile(r"\Aanalysis(?=[A-Z\"'(])")
"""A text in OpenAI's harmony format whose special tokens were dropped: `analysisWe need ...assistantfinalThe ...`."""
_JOINED_FINAL = "assistantfinal"
_THOUGHTS = (
    *((f"<{name}>", f"</{name}>") for name in ("think", "thinking", "thought", "thoughts", "seed:think")),
    *((f"<{name}>", f"</{name}>") for name in ("scratchpad", "reasoning", "reflection", "inner_monologue")),
    ("[THINK]", "[/THINK]"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
_LATE_ENDS = ("</think>", "</thinking>", "[/THINK]", "\u25c1/think\u25b7")
"""Ends of thoughts whose beginning was part of the prompt."""
_CALL = re.compile(
    r"<(?P<element>(?:[\w-]{1,20}:)?(?:(?:[a-z]{1,20}_)?(?:tool|function)_(?:calls?|use|code|response|results)(?=>)|"
    r"invoke(?= name=)|function(?==)))|<(?P<bar>[|\uff5c])(?P<token>tool[_\u2581]calls?(?:[_\u2581]section)?[_\u2581])"
    r"begin[|\uff5c]>|(?P<other><\|tool_call\|>|\[TOOL_CALLS\]|\[TOOL_REQUEST\])"
)
"""The beginning of a call of a tool, in the marks of whatever family."""
_CALL_ENDS = {
    "<|tool_call|>": "<|/tool_call|>",
    "[TOOL_CALLS]": "\n",
    "[TOOL_REQUEST]": "[END_TOOL_REQUEST]",
}
_ELEMENT = re.compile(
    r"\A<(answer|final_answer|final|response|output|vote|verdict|decision|reply|plan|review)>(?=[\s\S])"
)
_COMPLETION = re.compile(
    r"\A<attempt_completion>\s*+<result>((?:[^<]++|<(?!/result>))*+)</result>\s*+(?:<command>[^<]*+</command>\s*+)?"
    r"</attempt_completion>\Z"
)
"""The call by which coding agents hand in their result."""
_THOUGHT = re.compile(r"\AThought:[ \t]", re.IGNORECASE)
_LABELLED_FINAL = re.compile(r"^Final Answer:[ \t]*", re.MULTILINE | re.IGNORECASE)
_ACTION = re.compile(r"^Action(?: Input)?:", re.MULTILINE | re.IGNORECASE)
"""Thoughts and an answer with labels. With an action in between, its observation was made up: nothing is taken away."""
_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*([\w+-]{0,40})")
_MARKS = re.compile("[<\\[`~\u25c1]")
_OPENERS = re.compile(r"analysis|assistant|model|thought:", re.IGNORECASE)
"""All that is left around an answer has one of these marks, or begins with one of these words."""
_TEXT_FENCES = frozenset({"markdown", "md", "text", "txt", "plaintext"})


def cleaned(text: str) -> str:
    """`text` without what is no part of the answer at its ends. Empty if there was nothing else, e.g. only thoughts."""
    for _ in range(20):
        before = text
        text = _without_silent_tokens(text.strip(INVISIBLE))
        if _MARKS.search(text) or _OPENERS.match(text):
            text = _unfenced(_without_calls(_without_thoughts(_without_tokens(text))))
        if text == before:
            break
    return text


def is_cleaned(text: str) -> bool:
    """Whether `cleaned` takes more away from `text` than white space."""
    return cleaned(text) != text.strip(INVISIBLE)


def _without_tokens(text: str) -> str:
    if text.startswith(("<|channel|>", "<|start|>")) and (at := text.find(_FINAL)) >= 0:
        text = text[at + len(_FINAL) :]
    elif _JOINED.match(text) and (at := text.find(_JOINED_FINAL)) >= 0:
        text = text[at + len(_JOINED_FINAL) :]
    if text.startswith(("<|channel|>", *(opening for opening, _ in _THOUGHTS))) or _CALL.match(text):
        start = None  # the mark says what follows
    else:
        start = _TOKEN.match(text)
    if start:
        text = text[start.end() :].lstrip()
    text = _SPEAKER.sub("", text)
    while (at := max(text.rfind("<", -70), text.rfind("[", -10))) >= 0:
        end = _TOKEN.fullmatch(text, at)
        if end is None:
            break
        text = text[:at].rstrip()
    return text


def _without_silent_tokens(text: str) -> str:
    first, _, below = text.partition("\n")
    if below and first.strip("*`_. ") in SILENT_TOKENS:
        return below.strip(INVISIBLE)
    above, _, last = text.rpartition("\n")
    return above.strip(INVISIBLE) if above and last.strip("*`_. ") in SILENT_TOKENS else text


def _without_thoughts(text: str) -> str:
    folded = text[:40].casefold()
    for opening, closing in _THOUGHTS:
        if not folded.startswith(opening.casefold()):
            continue
        at = text.casefold().find(closing.casefold())
        if at >= 0:
            return text[at + len(closing) :].strip()
        return "" if opening in ("<think>", "<thinking>", "[THINK]") else text
    if _THOUGHT.match(text) and len(finals := list(_LABELLED_FINAL.finditer(text))) == 1:
        thoughts, answer = text[: finals[0].start()], text[finals[0].end() :].strip()
        return text if _ACTION.search(thoughts) or not answer else answer
    return _without_late_thoughts(text)


def _without_late_thoughts(text: str) -> str:
    """The text after an end of thoughts that nothing began, on a line that begins or ends with it."""
    if not any(end in text for end in _LATE_ENDS):
        return text
    lines = text.split("\n")
    inside, _ = fenced(lines)
    for index, line in enumerate(lines):
        if inside[index]:
            continue
        for end in _LATE_ENDS:
            opening = end.replace("/", "")
            if opening in line:
                return text
            rest = line.strip()
            if rest.startswith(end) or rest.endswith(end):
                after = "\n".join([rest.partition(end)[2], *lines[index + 1 :]]).strip()
                return after or text
    return text


def _without_calls(text: str) -> str:
    """The text after calls of tools, if there is any."""
    call = _CALL.match(text)
    if call is None:
        return text
    if call["element"]:
        end = f"</{call['element']}>"
    else:
        end = _CALL_ENDS.get(call[0], f"<{call['bar']}{call['token']}end{call['bar']}>")
    at = text.find(end, call.end())
    return (text[at + len(end) :].strip() if at >= 0 else "") or text


def _unfenced(text: str) -> str:
    """The content, if the whole text is one fenced block of text or Markdown, or one element like `<answer>`."""
    if completion := _COMPLETION.match(text):
        return completion[1].strip()
    if (element := _ELEMENT.match(text)) and text.endswith(closing := f"</{element[1]}>"):
        inner = text[element.end() : -len(closing)]
        return inner.strip() if not re.search(r"<[A-Za-z/][\w-]*[ >]", inner) else text
    inner, language = block_around(text)
    return inner.strip("\n") if language.casefold() in _TEXT_FENCES else text


def block_around(text: str) -> tuple[str, str]:
    """The content and the language of the one fenced block that is the whole text; else the text and `?`."""
    first, _, rest = text.partition("\n")
    inner, _, last = rest.rpartition("\n")
    fence = _FENCE.fullmatch(first.rstrip())
    if not fence or last.strip() != fence[1]:
        return text, "?"
    _, unclosed = fenced(inner.split("\n"))
    return (text, "?") if unclosed is not None else (inner, fence[2])
