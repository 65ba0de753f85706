"""The reading of a vote: which of the allowed answers a text declares.

By position, never by search: an allowed word counts if it stands first or last by itself, or first before a mark
(`Yes, both doors were tested.`). "No objections" and "unsolved" therefore decide nothing, and a text in which both ends
decide must say the same at both.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from mailboxd.formats.protocol import phrases
from mailboxd.formats.protocol.words import spelled

_SHORTEST_BENT = 4
"""Letters of an allowed word that may be bent: `approved` for `approve`. Two-letter words have too many neighbours."""
_YES = frozenset(
    {"yes", "yep", "yeah", "oui", "sí", "sì", "sim", "ja", "jawohl", "ano", "да", "tak", "evet", "हाँ", "हां", "نعم"}
    | {"是", "是的", "对", "はい", "네", "예"}
)
_NO = frozenset(
    {"no", "nope", "non", "nein", "nee", "nej", "não", "ne", "нет", "ні", "nie", "hayır", "नहीं", "لا"}
    | {"否", "不", "不是", "不是的", "いいえ", "아니요"}
)
"""Words that are a yes or a no before a comma as well; the Ukrainian `так` also means `so` in Russian."""
_TRUTH = {"true": "yes", "false": "no"}
"""The values of JSON that are a yes or a no."""
_LABEL = re.compile(
    r"(?:the |my |our |your )?(?:final |overall )?(?:answer|vote|decision|choice|option|selection|verdict|conclusion|"
    r"recommendation|"
    r"antwort|stimme|respuesta|réponse|答案|投票|结论)(?: is| ist|)?\s*(?::|\uff1a|=|->|\u2192|\bis\b)\s*",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:(?:my|our|the) (?:final )?(?:answer|vote|decision|choice|verdict) is|i (?:vote|choose|decide|pick|say|"
    r"answer)"
    r"(?: for| on| to)?:?|we (?:vote|choose|decide)(?: for| on)?:?|i|we)\s+",
    re.IGNORECASE,
)
_LINE_MARKS = re.compile(
    r"\A(?:#{1,6}[ \t]+|>[ \t]*|[-*+\u2022][ \t]+(?:\[[xX]\][ \t]*)?|\d{1,3}[.)][ \t]+|[A-Za-z][)][ \t]+)"
)
_BOXED = re.compile(r"\A\$*\\boxed\{(?:\\text\{)?([^{}]{1,60})\}?\}\$*\.?\Z")
_MARK = re.compile(
    r"[ \t]*(?:\)|\.(?!\s*\d)|[!;:,\u060c\u0964\u3002\uff01\uff0c\uff1b\uff1a\u3001\u2014](?!\d)|[ \t](?:-{1,2}|"
    r"\u2013|\u2212)[ "
    r"\t]|"
    r"\u2013|\(|\Z)"
)
_CONDITION = re.compile(
    r"\W*(?:but|if|unless|only|provided|providing|except|however|although|though|once|when|after|as long as|so long as|"
    r"with|mostly|almost|partly|partial(?:ly)?|conditional(?:ly)?|conditions?|on (?:the )?condition|assuming|pending|"
    r"subject to|maybe|perhaps|in principle|in theory|as soon as)\b",
    re.IGNORECASE,
)
_TURN = re.compile(
    r"[,;] ?(?:but|however|unless|except|provided|aber|pero|mais|ma|mas|ale|но)\b|\b(?:only (?:if|when|once|after)|"
    r"unless|"
    r"provided that|on (?:the )?condition|as long as|subject to|vorausgesetzt|sofern|siempre (?:que|y cuando)|à "
    r"condition|"
    r"sous réserve|a condición|a condizione|purché|desde que|contanto que|pod warunkiem|при условии)\b|但|不过|前提|"
    r"只要|除非|ただし",
    re.IGNORECASE,
)
_BUT = re.compile(r"(?:but|however|unless|only if|aber|pero|mais)\b", re.IGNORECASE)
_ALSO = re.compile(
    r"(?:or|and|oder|und|ou|et|o|y|e|of|en|lub|i|или|и)\s+(?=\S)|(?:或者?|和|または|か)\s*", re.IGNORECASE
)
"""A word before a second answer."""
_SENTENCE = re.compile(r"(?<=[.!?\u061f])[ \t]+|(?<=[\u3002\uff01\uff1f\u0964])|\n+")
_LONGEST = 200_000


def declared(said: str, answers: Sequence[str]) -> str:
    """The one of `answers` that `said`, the value of a header, is; empty if it is none of them."""
    if said.strip().startswith("[ ]"):
        return ""
    if said.strip() in _TRUTH and len(answers) == 2:
        said = _TRUTH[said.strip()]
    word = _plain(said.strip().removeprefix("[x]").removeprefix("[X]").strip(" []"))
    exact = [answer for answer in answers if _same(word, answer)]
    if len(exact) == 1:
        return exact[0]
    near = [answer for answer in answers if _means(word, answer, answers)]
    return near[0] if len(near) == 1 else ""


def stated(text: str, answers: Sequence[str]) -> str:
    """The one of `answers` that `text` states at its beginning or its end; empty if there is none, or two."""
    lines = list(_lines(text[:_LONGEST]))
    lines = [line for line in lines if not line.startswith(">")] or lines  # what is quoted is not the voter's
    if not lines:
        return ""
    found = {_at_the_start(lines[0], answers), _at_the_end(lines[-1], answers)}
    if len(lines) > 1:
        found |= {_at_the_start(lines[-1], answers, alone=True), _at_the_end(lines[0], answers)}
    found.discard("")
    if len(found) != 1 or _BOTH in found:
        return ""
    (answer,) = found
    last = declared(lines[-1].split()[-1], answers)
    return "" if last and last != answer and not lines[-1].startswith(("- [ ]", "* [ ]")) else answer


def takes_back(rest: str) -> bool:
    """Whether what follows an answer or a verdict begins with a condition, or with what limits it."""
    return bool(_CONDITION.match(rest) or phrases.CONDITION.match(rest.casefold()))


def problem(text: str, answers: Sequence[str]) -> str:
    """What to say to an agent whose text declares none of `answers`."""
    words = ", ".join(f"`{answer}`" for answer in answers)
    first = text.strip().partition("\n")[0][:200]
    return (
        f"`{first}` does not declare one of the allowed answers {words}. Write exactly one of them, alone, in the "
        "header `answer:` of a reply or on the first line of a text, without a condition, a second answer or any "
        "other word."
    )


_BOTH = "\0"
"""A place that names two answers, or one with a condition."""


def _lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        bare = line.strip().strip("*_`\"'\u201c\u201d\u201e\u2018\u2019").strip()
        if bare and not bare.startswith(("```", "~~~")) and any(map(str.isalnum, bare)):
            yield line.strip()


def _at_the_start(line: str, answers: Sequence[str], *, alone: bool = False) -> str:
    line = _undecorated(line, answers)
    if label := _LABEL.match(line):
        line = line[label.end() :].strip()
    bare = (
        line.replace("*", "")
        .replace("_", " ")
        .replace("`", "")
        .replace('"', "")
        .replace("\u201c", "")
        .replace("\u201d", "")
    )
    bare = _without_symbols(bare)
    for answer, word in _spellings(answers):
        if not bare.casefold().startswith(word):
            continue
        rest = bare[len(word) :]
        plain = _without_symbols(rest)
        rest = f" {plain}" if plain != rest else rest
        mark = _MARK.match(rest)
        if mark is None:
            continue
        after = rest[mark.end() :].strip()
        if alone and after:
            continue
        first = next(filter(None, map(str.strip, _SENTENCE.split(after))), "")
        if takes_back(after) or _TURN.search(first):
            return _BOTH
        if phrases.asks_back(first):
            return _BOTH
        if _BUT.match(after.partition(". ")[2]) or _BUT.match(after.partition("! ")[2]):
            return _BOTH
        second = _plain(_first_word(_ALSO.sub("", after, count=1) if _ALSO.match(after) else after))
        if any(_same(second, other) for other in answers if other != answer):
            return _BOTH
        return answer
    return ""


def _at_the_end(line: str, answers: Sequence[str]) -> str:
    last = [part for part in _SENTENCE.split(line) if part.strip()][-1:]
    if not last:
        return ""
    sentence = _undecorated(last[0], answers)
    if boxed := _BOXED.match(sentence):
        return declared(boxed[1], answers)
    if label := _LABEL.match(sentence):
        sentence = sentence[label.end() :]
    elif lead := _LEAD.match(sentence):
        sentence = sentence[lead.end() :]
    return "" if phrases.asks_back(sentence.rstrip()) else declared(sentence, answers)


def _undecorated(line: str, answers: Sequence[str]) -> str:
    """The line without the marks of a list or a heading, unless they are an answer: `A) because it is cheaper`."""
    line = line.strip()
    for _ in range(3):
        mark = _LINE_MARKS.match(line)
        if line.startswith("$\\boxed") or (mark and any(_same(_plain(mark[0]), answer) for answer in answers)):
            break
        line = line[mark.end() if mark else 0 :].lstrip("*_`\"\u201c\u201e\u2018'$ ")
    return line.replace("**", "").replace("__", "")


def _without_symbols(text: str) -> str:
    """The text without pictures at its beginning, like the check mark of `Approved [check mark]`."""
    at = 0
    while at < len(text) and (text[at].isspace() or is_symbol(text[at])):
        at += 1
    return text[at:] if any(map(is_symbol, text[:at])) else text


def is_symbol(letter: str) -> bool:
    return bool(letter) and (unicodedata.category(letter) in ("So", "Sk", "Cf") or "\ufe00" <= letter <= "\ufe0f")


def _plain(text: str) -> str:
    """A word as it is compared: without decoration, marks and case."""
    kept = "".join(letter for letter in text.strip() if not is_symbol(letter))
    return spelled(
        kept.strip(" \t*_`\"'\u201c\u201d\u201e\u2018\u2019.!;:,(){}\u060c\u0964\u3002\uff01\uff0c\u300c\u300d")
    )


def _first_word(text: str) -> str:
    return re.split(r"[\s,.;:!]", text.strip(), maxsplit=1)[0]


def _same(word: str, answer: str) -> bool:
    return bool(word) and word == spelled(answer)


def _means(word: str, answer: str, answers: Sequence[str]) -> bool:
    """Whether `word` is a bent form of `answer`, or `yes` or `no` in another language where just these are asked."""
    name = spelled(answer)
    if word in _bent(name) or name in _bent(word):
        return True
    allowed = {spelled(one) for one in answers}
    return (name == "yes" and word in _YES - allowed) or (name == "no" and word in _NO - allowed)


def _bent(word: str) -> frozenset[str]:
    if len(word) < _SHORTEST_BENT or not word.isascii() or not word.replace("_", "").isalpha():
        return frozenset()
    past = word + ("d" if word.endswith("e") else "ed")
    bent = {past, word + "s"}
    if word.endswith("y"):
        bent |= {word[:-1] + "ied", word[:-1] + "ies"}
    return frozenset(bent)


def _spellings(answers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each allowed answer with the words at the beginning of a text that mean it, the longest first."""
    pairs = [(answer, word) for answer in answers for word in _words_for(answer, answers)]
    yield from sorted(pairs, key=lambda pair: -len(pair[1]))


def _words_for(answer: str, answers: Sequence[str]) -> Iterator[str]:
    name = spelled(answer)
    yield answer.casefold().replace("_", " ")
    if "_" in name:
        yield name.replace("_", " ")
        yield name.replace("_", "-")
    others = {word for other in answers if other != answer for word in (spelled(other), *_bent(spelled(other)))}
    yield from (word.replace("_", " ") for word in _bent(name) - others)
    allowed = {spelled(one) for one in answers}
    if name == "yes":
        yield from _YES - allowed
    elif name == "no":
        yield from _NO - allowed
