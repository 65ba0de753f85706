"""Short answers that may not be the work: refusals, failures, promises, questions, calls of tools, plans in prose.

Done is claimed, not assumed. Such an answer is asked about once, because each of these texts can also be a result that
was asked for. So the tables are closed and a wrong suspicion costs one turn; a wrong trust completes a task with an
excuse. Length, a list, code or a heading end the suspicion, except for what the first sentence says of the work itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable

from mailboxd.core.vocabulary import Turn
from mailboxd.formats.protocol import words
from mailboxd.formats.protocol.ballots import is_symbol
from mailboxd.formats.protocol.calls import is_call
from mailboxd.formats.protocol.phrases import any_of, asks_back, in_a_clause, is_of_no_language
from mailboxd.formats.protocol.suspicions import Evasion, Kind, suspected

MOST = 700
"""Characters of a text that is suspected."""
_MOST_PLAN = 2_000
_MOST_UNREADABLE = 200
_SCRIPTS = frozenset({"LATIN", "CYRILLIC", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC", "DEVANAGARI"})
"""The scripts of the languages in `protocol.phrases`, by the first words of the names of their letters."""


def evasion(text: str, turn: Turn, agents: Iterable[str]) -> Evasion | None:
    """What `text`, the cleaned answer to a turn, seems to be instead of the work; None if nothing speaks for that."""
    if is_call(text):
        return suspected(Kind.CALL, text, turn)
    if len(text) <= _MOST_PLAN and _plans(text, frozenset(agents)):
        return suspected(Kind.PLAN, text, turn)
    kind = _kind(text, turn) if len(text) <= MOST else None
    return None if kind is None else suspected(kind, text, turn)


def denies(text: str) -> bool:
    """Whether the text of a reply that is declared done says that the work was refused or not possible."""
    return len(text) <= MOST and _kind(text, Turn.WORK) in (Kind.REFUSAL, Kind.FAILURE)


def confirms(text: str) -> bool:
    """Whether the answer to the question `Is this the result?` is a yes, without a result of its own."""
    return len(text) <= 120 and _CONFIRMS.fullmatch(_folded(text).strip(" *_`\"'.!")) is not None


def leaves_open(text: str) -> bool:
    """Whether the text around a vote asks back at its end, or begins with that its author cannot vote."""
    own = "\n".join(line for line in text.split("\n") if not line.startswith(">")) or text
    sentences = _sentences(_folded(own)) if len(text) <= MOST else []
    if not sentences:
        return False
    asks = asks_back(sentences[-1]) and not _OFFER.match(sentences[-1])
    return asks or _NO_VOTE.match(sentences[0]) is not None


def manners(paragraph: str) -> bool:
    """Whether a paragraph at the end of an answer is an offer or a wish, and no part of it."""
    folded = _folded(paragraph).strip()
    return bool(folded) and all(_OFFER.match(sentence) for sentence in _sentences(folded))


# Plans in prose

_ITEM = re.compile(
    r"^[ \t]*(?:[-*+\u2022][ \t]|\d{1,3}[.)][ \t]|(?:step|schritt|第)[ \t]*[\d一-鿿]{1,2}|\|)(.*)$",
    re.MULTILINE | re.IGNORECASE,
)
_PLANNING = re.compile(
    r"\b(?:i'll|i will|we'll|we will|i would|i'd|we would|i am going to|i'm going to|let's|i plan|i propose|i "
    r"suggest|"
    r"(?:my|the|a|our) (?:\w+ )?plan|split|divide|break (?:it|this|the)|delegate|assign|hand (?:it|this|"
    r"over)|subtasks?|sub-tasks?|"
    r"step[s]? (?:\d|are|would|as)|approach|workflow|plane|teile|aufteilen|vorgehen)\b|"
    r"\b(?:plan|план) ?:|^#{1,6} (?:plan|subtasks|план)\b|計画|计划|步骤|"
    r"拆分|分配|我将|我会",
    re.IGNORECASE,
)
_ARROW = re.compile(r"[-=\u2013]{1,2}>|[\u2192\u21d2\u27f6]")
_TOLD = re.compile(
    rf"(?<![\w.-])@?([\w.-]{{1,80}}) ?(?:(?:will|should|shall|is going to|is to)\b|{_ARROW.pattern})"
    r"|\b(?:first|then|next|after that|afterwards|finally|lastly|second|third),? @?([\w.-]{1,80}) (?!was|has|is|does)"
    r"[a-z]{2,20}s\b"
)
_DOES = re.compile(
    r"[ \t]*[*_`]{0,3}@?([\w.-]{1,80})[*_`]{0,3}([ \t]*[:\u2014\u2013-])?[*_`]{0,3}[ \t]+([^\W\d_]{2,40})"
)
_DID_SO = re.compile(
    r"\w+ed|found|wrote|said|says|has|had|was|is|are|did|reports|made|sent|built|read|got|gave|hat|wurde"
)
_GIVEN = re.compile(
    r"\b(?:(?:assign|delegate|give|hand|pass)(?: [\w']{1,20}){0,4} to|let|have|ask|then,?) @?([\w.-]{1,80})"
)
_FIRST_WORD = re.compile(r"[\s>*_`~+\u2022-]*(?:\d{1,3}[.)]\s*)?[*_`@]*([\w.-]{1,80})")
_AGENT_COLUMN = frozenset({"agent", "assignee", "owner", "assigned_to", "who", "responsible", "executor", "by"})


def _plans(text: str, agents: frozenset[str]) -> bool:
    """Whether items of a list, or rows of a table, give work to agents, and the text speaks of doing so."""
    if "```" in text or "~~~" in text:
        return False
    names = {name.casefold() for name in agents if name not in ("self", "me", "main")}
    if names and len(text) <= MOST:
        folded = text.casefold()
        if _tells(folded, names) >= 2 or any(_is_chain(line, names) for line in folded.split("\n")):
            return True
    rows = list(_ITEM.finditer(text))
    items = [row[1] for row in rows]
    if len(items) < 2:
        return False
    if names and all(_begins_with(row, names) for row in rows):
        return True
    given = sum(1 for item in items if _gives(item, names))
    header = items[0].casefold()
    if text.lstrip().startswith("|") or "\n|" in text:
        columns = {words.spelled(cell) for cell in header.split("|")}
        if (
            given
            and columns & _AGENT_COLUMN
            and (columns & {"step", "task", "subtask", "order", "depends_on", "after"})
        ):
            return True
    return given > 0 and _PLANNING.search(text) is not None


def _is_chain(line: str, names: set[str]) -> bool:
    """Whether arrows lead from agent to agent: `beta (count) -> gamma (tell)`."""
    firsts = [found[1].rstrip(".-") for part in _ARROW.split(line) if (found := _FIRST_WORD.match(part))]
    return sum(first in names for first in firsts) >= 2


def _begins_with(row: re.Match[str], names: set[str]) -> bool:
    """Whether an item says first which agent does it, and not what an agent has done."""
    found = _DOES.match(row[1].casefold())
    if found is None or found[1].rstrip(".-") not in names or _DID_SO.fullmatch(found[3]):
        return False
    return not found[2] or row[0].lstrip()[0] not in "-*+\u2022|"


def _tells(folded: str, names: set[str]) -> int:
    """How many times the text says what an agent is to do: `beta will ...`, `gamma -> prices`."""
    told = sum((found[1] or found[2]).rstrip(".-") in names for found in _TOLD.finditer(folded))
    return told + sum(found[1].rstrip(".-") in names for found in _GIVEN.finditer(folded))


def _gives(item: str, names: set[str]) -> bool:
    tokens = re.findall(r"@?[\w.-]+", item.casefold())
    return any(token.lstrip("@").rstrip(".-") in names for token in tokens)


# Sentences


def _anywhere(phrases: str) -> re.Pattern[str]:
    """A pattern of phrases to search a sentence for, in lower case: tried where one may begin, not at each character.

    That is where a word begins; with a mark that separates clauses; or within a script that has no spaces.
    """
    return re.compile(rf"(?:(?<![a-z0-9_])(?! )|(?=[,;:\x80-\U0010ffff]))(?:{phrases})")


_LIST = re.compile(r"^[ \t]*(?:[-*+\u2022][ \t]|\d{1,3}[.)][ \t]|\|)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t]|^[^\n]+\n(?:===|---)", re.MULTILINE)
_MARKUP = re.compile(r"^[ \t]*(?:<[!A-Za-z/?]|\.\. |[{[]|@@ )", re.MULTILINE)
_CODE = re.compile(r"[;{}]$|^(?:import|from|const|let|var|def|class|function|export|#include|package) \S", re.MULTILINE)
_BREAK = re.compile(r"(?<=[.!?\u2026\u061f])[\"')\u201d*_]*[ \t]+|(?<=[\u3002\uff01\uff1f\u0964])|\n+")
_PLACEHOLDER = re.compile(
    r"[\[<({]{1,3}[\w ,'./-]{0,80}\b(?:here|placeholder|insert|tbd|todo|to be (?:added|filled|written|done)|to "
    r"follow)\b"
    r"[\w ,'./-]{0,80}[\])>}]{1,3}|(?:todo|fixme|tbd|wip)\b[:.]?[^\n]{0,80}",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"[\W_]*(?:n/a|none|null|nil|nan|undefined|object object|"
    r"(?:no|empty) (?:output|response|answer|content|result))[\W_]*",
    re.IGNORECASE,
)
"""What programs print where there is no value."""
_MOST_MARKS = 20
"""Characters of a text of marks alone that says nothing; a longer one may be a drawing."""
_LETTER = re.compile(
    r"\A(?:subject:[^\n]{0,200}\n+)?(?:dear|hello|hi|hey|good (?:morning|day|evening)|to whom|sehr geehrte|liebe|"
    r"lieber|hallo|cher|"
    r"chère|estimad|querid|caro|cara|gentile|prezad)\b[^\n]{0,80}[,:!]?\n",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"^(?:(?:kind|best|warm|with (?:kind|best|warm)) (?:regards|wishes)|regards|yours|sincerely|best|cheers|mit "
    r"freundlichen|viele gr|herzliche|cordialement|saludos|un saludo|atenciosamente|cordiali)\b",
    re.MULTILINE | re.IGNORECASE,
)

_FILL = (
    r"(?:, )?(?:(?:really|very|so|truly|terribly|currently|also|simply|just|still|unfortunately|therefore|sadly|only|"
    r"not|now|then|actually|however)[ ,]++)*"
)
_WORKS = (
    r"(?:help|assist|do|complete|fulfil|fulfill|comply|provide|write|create|access|open|read|find|finish|"
    r"continue|proceed|carry|"
    r"perform|generate|answer|determine|produce|support|process|see|send|order|execute|run|reach|retrieve|"
    r"download|fetch|"
    r"engage|browse|view|verify|check|load|save|edit|modify|translate|summari[sz]e|deliver|make|take on|accept|"
    r"start|begin|connect|locate|fully|actually|be of)"
)
_CANNOT = (
    r"(?:can't|cannot|can not|could not|couldn't|won't be able to|will not be able to|am not able to|'m not "
    r"able to|was not able to|wasn't able to|am unable to|'m unable to|was unable to|were unable to|are unable "
    r"to|unable to|won't|will not|failed to|did not manage to|didn't manage to)"
)
_FOUND_NONE = (
    r"(?!find (?:a|an|any|anything|no|other|further|more|evidence|errors|problems|mistakes)\b)(?!see (?:a|an|any)\b)"
)
_WORK_NAMES = (
    r"(?:task|work|request|job|summary|file|document|report|order|translation|step|operation|assignment|action|"
    r"command|question|instruction)s?"
)
_OF_OPINION = (
    r"(?:recommend|believe|imagine|remember|recall|forget|understand|bear|stand|take|help|get|put|say|tell|agree|love|"
    r"like|rule|exclude|deny|blame|praise|see|hear|feel|find|stop)\b"
)
"""What an author cannot do with something and has worked all the same."""
_DID = (
    r"(?:completed?|finished|done|carried out|executed|written|created|prepared|drafted|delivered|fulfilled|"
    r"implemented|"
    r"addressed|performed|handled|processed|generated|wrote|did|made|updated|changed|edited|added|fixed|saved|sent|"
    r"moved|"
    r"removed|deleted|applied|refactored|translated|checked|reviewed|corrected|improved|modified|adjusted|revised|"
    r"rewritten|"
    r"rewrote|built|tested|verified|analy[sz]ed|summari[sz]ed|compiled|collected|gathered|merged|committed|pushed|"
    r"deployed|"
    r"configured|installed|uploaded|published|posted|submitted|produced|put|stored|documented|formatted|cleaned|"
    r"resolved|"
    r"converted|organi[sz]ed|provided|included|placed)"
)
_COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNTED = "|".join(_COUNTS)
_GAVE_UP = (
    r"(?:stopped|gave|skipped|left|ended|aborted|assumed|guessed|invented|made|cancel|failed|omitted|ignored|did not)"
)
"""What an author did who did not do it."""
_REFUSES = _anywhere(
    rf"(?:^|[,;] |^(?:final |my )?(?:note|results?|status|answer|update|problem|issue|error|response|outcome|"
    rf"reason)\W{{1,4}}|"
    rf"\b(?:but|and|so|therefore|because|as|that|unfortunately|regrettably|sorry)[, ]+)(?:i|we)(?: am|'m| are|'re| "
    rf"was| "
    rf"were)?[ ]*{_FILL}{_CANNOT} {_FILL}{_FOUND_NONE}{_WORKS}\b"
    rf"|^(?:i'm|i am|we are|we're) {_FILL}(?:unable|not able|not allowed|not permitted|not comfortable|not "
    rf"authori[sz]ed|prohibited|afraid)\b"
    r"|^(?:i|we) (?:must|have to|need to|will have to)? ?(?:respectfully )?(?:decline|refuse)\b"
    r"|^as an? (?:ai|language model|llm|assistant)\b|^(?:it|this|that) (?:goes |is )?(?:against|violates|beyond) "
    r"(?:my|our|the)\b|^(?:unfortunately,? )?(?:it|this|that)(?:'s| is| falls| lies) (?:outside|beyond)(?: of)? "
    r"(?:my|our|what (?:i|we))\b"
    rf"|^(?:i|we) (?:do not|don't|did not|didn't|currently do not|currently don't) have (?:the |any |enough |"
    rf"sufficient |direct )*(?:access|ability|abilities|permission|permissions|tool|tools|capability|information|"
    rf"data|context|means|right)\b"
    r"|^(?:i|we) (?:have no|lack) (?:the |any )*(?:access|ability|permission|permissions|tool|tools|way|means|"
    r"information)\b"
    r"|^(?:my|our) (?:\w+ )?(?:polic(?:y|ies)|guidelines?|instructions?|rules?|programming|training|principles|"
    r"restrictions|safety \w+|configuration|permissions)\b[^.]{0,40}\b(?:not|n't|prohibits?|forbids?|prevents?|"
    r"restricts?)\b|\b(?:conflicts? with|contradicts?|goes against|against|violates?|in violation of) (?:my|our) "
    r"(?:\w+ )?(?:polic|guideline|instruction|rule|programming|principle|training|value|restriction|permission)"
    r"|\bnot (?:something|a thing|anything) (?:that )?(?:i|we)(?:'m|'re|'ll| can| could| am| are| will| would)\b"
    r"|\b(?:prevents?|stops?|keeps?|prohibits?) me from\b|\b(?:not|n't) (?:allow|permit|let|enable)(?:ed)? me to\b"
    r"|^(?:i|we) (?:do not|don't|would not|wouldn't|did not|didn't) (?:really )?(?:feel comfortable|feel able|think "
    r"(?:i|we) (?:should|can|could)|want to|wish to|believe (?:i|we) (?:should|can))\b"
    r"|^(?:i|we)(?:'d| would) (?:rather not|prefer not)\b|^(?:i|we) (?:gave|had to give|have given|give) up\b"
    r"|^(?:my|our|all) (?:\w+ )?(?:attempts?|efforts?)\b[^.]{0,40}\bfail"
    rf"|^(?:i|we)(?:'m| am| was|'re| are| were) {_FILL}(?:unable|not able) to {_FOUND_NONE}[a-z]"
    r"|^(?:i|we)(?:'m| am|'re| are) not going to\b|^(?:i|we)(?:'m| am| was|'re| are| were|'ve been| have been) "
    r"(?:(?:instructed|told|"
    r"asked) not to|not (?:supposed|designed|meant|trained|programmed|configured))\b"
    r"|^(?:nope|no|nah|sorry)[,.]? (?:i )?(?:can't|cannot|can) do\b"
    r"|\bthere (?:is|was) nothing (?:that |more )?(?:i|we) (?:can|could)\b"
    rf"|[,;] (?:so|therefore|hence) there (?:is|was) nothing to {_WORKS}\b"
    r"|^(?:(?:that|this|it)(?:'s| is) |sorry[,:]? )*not (?:my|our) (?:department|job|task|area|field|responsibility)\b"
    rf"|(?:^|[,;] |\b(?:but|and|so|therefore|because|that)[, ]+)(?:i|we) {_FILL}{_CANNOT} {_FILL}(?!{_OF_OPINION})"
    r"[a-z]{2,20} (?:it|this|that|them|these|those)\b"
    rf"|{in_a_clause('unable')}"
    r"|\b(?:access|permissions?|rights?|credentials?|tools?|information)\b[^.]{0,60}\b(?:which|that) (?:i|we) (?:do "
    r"not|"
    r"don't|currently do not) have\b|^skipp(?:ing|ed) (?:this|the|it)\b"
)
_CANNOT_AT_ALL = re.compile(
    rf"(?:(?:however|but|so|unfortunately|therefore|sorry)[, ]+)?i {_FILL}(?:can't|cannot|can not|could not|couldn't) "
    rf"{_FOUND_NONE}(?!believe|wait|remember|forget|imagine|sleep|live|stand|stop|help but|help (?:falling|it)|"
    rf"complain|"
    r"recommend|say|get|hear|feel|love|be |bear|think|deny|see|move|speak|breathe)[a-z]"
)
"""Whatever it is that the author cannot do: of the work, if the answer says hardly more."""
_NO_VOTE = re.compile(
    rf"(?:(?:i'm |i am )?sorry,? (?:but )?|unfortunately,? )?(?:i|we)(?: am| are|'m|'re)? {_FILL}{_CANNOT} (?:\w+ "
    rf"){{0,2}}"
    r"(?:vote|decide|judge|answer|assess|determine|evaluate|choose|say|tell|help)\b"
)
_APOLOGY = re.compile(
    r"^(?:(?:i'm|i am|we are|we're) )?(?:so |very |really |truly |terribly )?sorry(?! seems| is\b| was\b| "
    r"songs?\b)\b|^(?:my |our )?(?:sincere "
    r")?apologies\b|^(?:i|we) (?:sincerely )?apologi[sz]e\b|^(?:unfortunately|regrettably|sadly)[, ]*$"
    rf"|^(?:{any_of('sorry')})"
)
_PARTLY = re.compile(
    rf"(?:(?:i|we)(?: have|'ve)? )?(?:only |so far |already )*(?:{_DID}|got through) (?:only )?"
    rf"(?P<done>\d{{1,6}}|{_COUNTED}) (?:out )?of (?:the |all )?(?P<all>\d{{1,6}}|{_COUNTED})\b"
)
"""How many of how many the author has done."""
_IN_PART = re.compile(
    r"\b(?:partly|partially|in part|teilweise|en partie|partiellement|parcialmente|en parte|em parte|in parte|"
    r"parzialmente|gedeeltelijk|częściowo|částečně|čiastočne|частично|частково|kısmen|delvis)\b|आंशिक|جزئي|部分|一部|일부"
)
_WORKED_AROUND = re.compile(
    rf"[^.]{{0,120}}?,? (?:so|but|instead|and) (?:then |instead )*(?:i|we)(?: have|'ve)? (?:then |instead )*"
    rf"(?!{_GAVE_UP})(?:{_DID}|called|used|went|took|read|asked|counted|looked|found|got|tried|[a-z]{{3,20}}ed)\b"
)
"""A sentence that says how the author did it all the same."""
_FAILS = _anywhere(
    rf"\b(?:the|this|your|that) (?:\w+ ){{0,2}}{_WORK_NAMES}\b[^.!?]{{0,40}}(?:cannot|could not|can't|couldn't|"
    rf"was not|wasn't|has not|hasn't|were not) (?:be |been )?(?:\w+ )?(?:completed?|done|finished|fulfilled|"
    rf"processed|carried|executed|performed|written|summed|read|opened|found|loaded|accessed|started|possible|"
    rf"sent|delivered|available|attached)\b"
    r"|^(?:it|this|that)(?: work| task)? (?:is|was|proved|seems) (?:\w+ )?(?:not possible|impossible|not "
    r"feasible)\b|^(?:it|this|that) (?:cannot|could not|can't|couldn't) be (?:done|completed|finished|carried)\b"
    rf"|^{_FILL}(?:unable to|could not|couldn't|cannot|can't|failed to) {_FOUND_NONE}{_WORKS}\b|^(?:the "
    rf")?(?:task|work|job|run|execution|attempt|command|request|operation) (?:has )?failed\b|^(?:execution |task "
    rf"|run )?failed\s*[:.!-]|^failed$"
    r"|^(?:unfortunately|regrettably|sadly|alas),? [^.]{0,80}\b(?:not|never|n't|unable|fail(?:ed|s))\b"
    r"|\b(?:tool|command|request|api|server|call|browser|script|model|service|connection|backend|"
    r"function)\b[^.!?]{0,30} "
    r"(?:returned|threw|raised|reported|gave|responded with|ended (?:in|with)|resulted in) an? (?:\w+ ){0,2}(?:error|"
    r"exception|failure|timeout)\b|\bthere is no result\b"
    r"|^(?:i|we) (?:have |'ve )?(?:encountered|ran into|run into|hit|got|experienced|faced) (?:an?|some) (?:\w+ "
    r"){0,2}(?:problem|"
    r"error|issue|exception|failure|timeout)s?\b|^there (?:was|is|has been) an? (?:\w+ ){0,2}(?:problem|error|issue) "
    r"(?:with|while|"
    r"when|in) (?:(?:the|my|your) )?(?:tool|file|request|connection|task|api|server|reading|opening|accessing|"
    r"processing|executing|"
    r"running|loading|search|system|service|network)\b|^(?:it|this|that) (?:has )?(?:failed|didn't work|did not work|"
    r"went wrong)(?:,|"
    r"\W*$)"
    r"|^(?:i|we)\b[^.]{0,120}\bbut\b[^.]{0,80}\b(?:failed|crashed|hung|timed out|got stuck|broke off|could not|"
    r"couldn't|was not able|not (?:done|complete|finished|possible))\b"
    r"|^(?:error(?!s)|fatal|exception(?!s))[\w ]{0,20}\s*[:\uff1a]|^(?:something went wrong|an? "
    r"(?:\w+ )?error (?:has )?occurred|(?:permission|access) denied|"
    r"(?:this is |that is )?(?:not possible|impossible)\W*$|i(?:'m| am) (?:currently )?(?:busy|overloaded)|(?:the "
    r")?(?:request|connection) timed out|"
    r"(?:i|we) (?:do not|don't) know\b|(?:i|we) have no idea|there (?:is|was) no (?:such )?(?:file|folder|"
    r"directory)\b|please try again)|^(?:api|http|"
    r"network|timeout|rate limit|internal server|server)[\w ]{0,20} error\b|^traceback \("
    r"|\b(?:file|folder|directory|page|document|attachment|repository|dataset|image|link|"
    r"url)\b(?:[^.!?]|\.(?=\w)){0,60}\b(?:does not exist|doesn't exist|do not exist|is missing|are missing|was not "
    r"found|were "
    r"not found|not found|could not be found|cannot be found|is not accessible|was not attached|was not provided|"
    r"is not available)\b"
    r"|\b(?:no|nothing|not any) (?:file|document|text|attachment|image|data|input)?s? ?(?:was|were|has been|have "
    r"been|is|are) (?:attached|provided|given|included|supplied|shared)\b|^you (?:did not|didn't|have not|"
    r"haven't) (?:attach|provide|include|share|give|sp)"
    r"|\b(?:partially|partly|only half|only partly|not fully|not yet|incompletely) (?:done|complete|completed|"
    r"finished)\b|\bthe rest (?:is missing|is still missing|follows|will follow|is open|remains)\b|\b(?:ran|run|"
    r"running) out of (?:time|tokens|space|context)\b|^\W*to be continued"
    r"|^(?:the |my )(?:[\w-]+ ){0,2}(?:[\w-]*load|[a-z]+(?:tion|ment|sion)|build|import|export|update|sync|login|"
    r"search|query) (?:has )?failed(?:\W*$|[,;:]| because\b| due\b| with\b)"
    r"|\btoo (?:long|large|big) for (?:my|the|this|our) (?:\w+ )?(?:context|window|input|limit|memory)\b"
    r"|^(?:i|we)(?: am|'m| are|'re) (?:currently )?(?:out of (?:the )?office|on (?:vacation|holiday|leave))\b"
    r"|^(?:this is an? )?auto(?:matic|mated)?[ -]?(?:reply|response|answer)\b"
    rf"|{in_a_clause('failed')}|{any_of('missing')}"
    r"|^no (?:\w+ ){0,2}could be (?:produced|generated|created|written|made|delivered|obtained|computed)\b"
    r"|\b(?:context|time|tokens|budget|memory)(?: window)? ran out\b|^(?:i|we) (?:have )?only got (?:as far as|"
    r"through|to)\b"
    r"|^(?:blocked|stuck|on hold|paused|waiting|pending)\s*[:\u2013\u2014] ?[a-z]"
)
_ERROR = re.compile(
    r"\A(?:(?:error|fatal|failed|tool error|result)\s*[:\uff1a-]\s*)?(?:"
    r"(?-i:(?:[a-z_]\w{0,30}\.){0,5}(?:[A-Z]\w{0,40})?(?:Error|Exception|[a-z]Timeout|KeyboardInterrupt)\b\s*[:(])"
    r"|(?-i:E(?:NO[A-Z]+|ACCES|PERM|CONN[A-Z]+|TIMEDOUT|ISDIR|EXIST|ADDR[A-Z]+|PIPE|MFILE|BUSY|AI_AGAIN|HOSTUNREACH))\b"
    r"|Traceback \(most recent|panic: |segmentation fault|fatal: |aborted \(|killed\W*\Z"
    r"|(?:[\w./-]{1,40}: ){1,4}(?:line \d+: )?(?:.{0,60}: )?(?:no such file|permission denied|command not found|cannot "
    r"(?:access|open|stat)|not found|is a directory)"
    r"|no such (?:file|directory|command|table|host)\b|(?:file|command|module|path|page|resource) not found\b"
    r"|(?:permission|access) denied\b|operation not permitted\b|connection (?:refused|reset|closed|aborted|timed out)\b"
    r"|(?:HTTP(?:/[\d.]{1,3})?|status code|(?:http )?error(?: code)?)[ :]{1,2}[45]\d\d(?:\W*\Z|[ :-]{1,3}[\w "
    r"]{0,30}\W*\Z)"
    r"|[45]\d\d[ :-]{1,3}(?:bad request|unauthori[sz]ed|payment required|forbidden|not found|method not|request "
    r"timeout|"
    r"conflict|gone|too many|internal server|not implemented|bad gateway|service unavailable|gateway timeout|client "
    r"error|"
    r"server error|overloaded)"
    r"|(?:internal server error|bad gateway|service unavailable|gateway timeout|too many requests|unauthori[sz]ed|"
    r"forbidden)\W*\Z"
    r"|(?:[\w']+ ){0,3}(?:rate[ -]?limit|quota|usage limit|token limit|context length|context window|credit balance|"
    r"max(?:imum)? (?:number of )?(?:tokens|turns|iterations|steps|retries|attempts))[\w ]{0,20} (?:was |has been |"
    r"is )?"
    r"(?:exceeded|reached|hit|exhausted|too low)\b"
    r"|(?:request|operation|command|tool|read|connection|agent|model)? ?timed out\b|timeout (?:after|while)\b"
    r"|(?:process |command |it )?exit(?:ed)?(?: with)? (?:code|status) [1-9]|stopped after \d+ (?:steps|iterations|"
    r"turns)"
    r"|agent stopped due to|you(?:'ve| have)? (?:exceeded|reached|hit) your"
    r"|\[?(?:(?:request|run|turn|operation|generation|task|response) )?(?:was |has been )?(?:interrupted|cancell?ed|"
    r"aborted|terminated)(?: by (?:the )?user)?\W*\Z"
    r"|(?:the |your |this )?(?:response|prompt|request|input|output|content|message|generation) (?:was|has been|is) "
    r"(?:filtered|blocked|flagged|refused|rejected by (?:the|our))\b"
    r"|<(?:!doctype html[^>]{0,80}>\s{0,20}<)?html[^>]{0,200}>[\s\S]{0,400}?<title>\s{0,20}[45]\d\d )",
    re.IGNORECASE,
)
"""How a text begins that is the message of a program or a service that failed."""

_FAILED_ELEMENT = re.compile(
    r"\A<(?:reply|result|response|answer|task)>.{0,400}<status>\s{0,20}(?:failed|failure|error)\s{0,20}</status>",
    re.DOTALL,
)
"""A reply in XML that says that it failed."""
_STATUS_LINE = re.compile(
    r"^\W*(?:final |task |overall )?(?:status|state|result|outcome|ergebnis|状态)\W*[:=\uff1a]\W*([\w "
    r"]{2,24})\W*$",
    re.MULTILINE,
)
_NEEDS = _anywhere(
    r"^(?:to|in order to) [^,]{3,80}, (?:i|we)(?:'ll|'d| will| would)? need\b|"
    r"\bbefore (?:i|we) (?:can|could|start|begin|go|do|order|write|proceed|continue)\b"
    r"|\b(?:i|we)(?:'d| would)? (?:still |first |just |also |would |will )*(?:need|require|am missing|are "
    r"missing)(?:ed)? (?:one|two|three|four|a few|some|more|to know|additional|further|clarification|clarity|"
    r"information|your|you to|an answer|a decision|input|the following|details|a bit more)\b"
    r"|\b(?:could|can|would|will) you (?:please |kindly |also )*(?:tell|provide|clarify|confirm|share|specify|"
    r"send|let|give|upload|attach|explain|say|point|paste|advise)\b"
    r"|\bplease (?:clarify|specify|tell me|provide me|advise|confirm (?:which|whether|if|what)|let me know "
    r"(?:which|what|how|who|when|where|whether|if (?!you(?:'d| would)? (?:like|need|want|have)))|(?:upload|"
    r"attach|paste|share|provide) (?:the|a|your|me|more|additional))"
    r"|\b(?:i|we) (?:have|'ve) (?:got )?(?:a|one|two|three|some|a few|several) (?:\w+ )?questions?\b|\b(?:it's|"
    r"it is|i'm|i am) (?:un|not )(?:clear|sure) (?:to me )?(?:which|what|whether|if|how|who|where|when)\b"
    r"|^(?:i|we) (?:still |first |only |just |also )*(?:need(?! to )|require|am missing|are missing|"
    r"lack)\b[^.]{0,80}\b(?:to (?:go on|"
    r"continue|proceed|start|begin|finish|complete|do (?:this|that|it)|help|answer|work)|before|first)\b"
    r"|^please (?:send|give|supply) (?:me|us)\b"
    r"|\b(?:task|request|instructions?|question|requirement|assignment)s?\b[^.]{0,30}(?:is|are) (?:very |too |quite |"
    r"still )*"
    r"(?:unclear|not (?:very |entirely |quite )?clear|ambiguous|vague|not specific)\b"
    r"|\b(?:i|we) (?:do not|don't|did not|didn't|cannot|can't) (?:quite |fully |really )*understand\b"
    rf"|{any_of('asks')}"
)
_WANTS = re.compile(r"\b(?:i|we) (?:still |first |only |just )?need\b")
_OFFER = re.compile(
    r"(?:would you (?:like|prefer|want)|do you want|shall i|should i (?:also|make|add|change|adjust|send|write|"
    r"include|go)|want me to|let me know\b(?! (?:which|what|how many|who|when|where)\b)|feel free|if you(?:'d| "
    r"would)? (?:like|need|want|have|prefer|upload|provide|share|send|tell)|i hope\b|(?:i )?hope (?:this|that|"
    r"it)|is there anything|(?:i'm|i am|i'd be|i would be|i will be|i'll be)? ?(?:happy|glad|here) to|i can "
    r"(?:also|then|adjust|make)|just (?:tell|let|say|ask)|don't hesitate|please (?:feel free|don't hesitate|do "
    r"not hesitate|let me know if you(?:'d| would)? (?:like|need|want|have))|anything else|good luck|enjoy\b|"
    rf"{any_of('offers')})",
    re.IGNORECASE,
)
_IF = re.compile(r"(?:if|wenn|si|se|als|jeśli|если|om)\b|如果|希望")
_ABOUT_ME = re.compile(
    r"\b(?:i|i'll|i'm|i'd|me|we|us|my|ask|question|questions|anything|ich|mir|mich|wir|uns|fragen|frage|je|moi|nous|"
    r"yo|nos|eu|mi|"
    r"io|ik|mij|я|мне|меня|jag|mig)\b|我|告诉|问题|帮助|有用"
)
_OPENERS = (
    r"(?:(?:as (?:requested|instructed|you asked|asked)|(?:based on|according to|following) [^,.]{1,60}|good news|"
    r"great news)[,:!] *+)?"
    r"(?:(?:ok|okay|hmm?|well|um|wait|sure|sure thing|great|perfect|understood|got it|thanks|yes|alright|all right|"
    r"now|first|then|next|"
    r"noted|"
    r"acknowledged|roger|received|absolutely|certainly|of course|no problem)[,:! -]+)*"
)
_PROMISES = re.compile(
    rf"{_OPENERS}(?:(?:i|we)(?: will|'ll|'m going to| am going to| are going to| shall)\b(?! (?:always|never|love|miss|"
    r"remember|follow you)\b)|let me (?!know)|(?:i|we) can (?:certainly |definitely |absolutely |gladly |surely "
    r")*(?:do|help|handle|take care)\b|"
    r"(?:task |current |my )*(?:status|state)\W{1,3}(?:in progress|pending|running|started|not started|working|"
    r"queued|waiting)\b|"
    r"let's (?:start|begin|get started)|i need to (?:read|check|look|see|"
    r"find|open|"
    r"analy[sz]e|review|search|examine|understand|gather|verify|first|start|think)\b|(?:i|we)(?:'m| am|'re| are) "
    r"(?:now |"
    r"currently |already |still )*(?:working|starting|looking|checking|beginning|preparing|processing|on it|about to|"
    r"reading|analy[sz]ing|reviewing|gathering|searching|investigating)\b|"
    r"(?:i|we) (?:passed|handed|forwarded|delegated|gave|assigned|routed|escalated) (?:this|it|that|the (?:task|work|"
    r"question|request|job)) (?:on |over |back )?to\b|"
    r"(?:passed|handed|forwarded|delegated|assigned|routed|escalated) (?:on |over |back )?to\b|will (?:report|reply|"
    r"send|check|follow up|start|deliver|get back)\b|(?:still )?working on\b|on it\b|will do\b|starting\b|(?:i|"
    r"we)(?:'ve| have) (?:now |just |already )*(?:started|"
    r"begun|"
    r"received|accepted|noted|queued|scheduled|taken|delegated|"
    r"forwarded|assigned|handed|asked|passed|routed|escalated)\b|(?:queued|accepted|pending|in progress|"
    r"loading|thinking|generating|searching|"
    r"processing)"
    r"\W*$|[a-z' ]{1,40} (?:is |are )?(?:now |still )*(?:in progress|under way|underway|ongoing|pending)\W*$|give "
    r"me\b|one "
    r"moment|just a (?:moment|second|minute)|a moment please|stand by|hold "
    r"on|please (?:wait|stand by|hold on|be patient|give me)|bear with me|(?:more|results?|an update|the answer|"
    r"details) "
    r"(?:will follow|soon|later|shortly|to follow)|(?:will|to) (?:report|get|reply|be) back\b|(?:to be "
    r"continued|\(continued|continued (?:in|below|on))\b|(?:part|"
    r"section) \d[^.]{0,20} (?:follows|will follow|coming)\b|your (?:request|"
    r"task) (?:has been|was|is) (?:received|accepted|queued|noted|being)|(?:the )?task (?:received|accepted|"
    rf"acknowledged|noted)|{any_of('promises')})"
)
_ACK = re.compile(
    r"(?:got it|ack|here you go|there you go|here it is|understood|ok|okay|okey|sure|sure thing|certainly|of "
    r"course|absolutely|alright|all right|"
    r"acknowledged|acknowledge|roger(?: that)?|copy that|noted|received|thanks|thank you(?: (?:very much|so "
    r"much))?(?: for (?:the|your|this) (?:task|message|request|update|details|information|instructions|"
    r"clarification|question|feedback))?|great|perfect|no problem|no worries|happy to help|my pleasure|great "
    rf"question|good question|with pleasure|{any_of('received')})"
)
_GREETING = re.compile(r"(?:hello|hi|hey)(?: there)?|good (?:morning|day|evening)")
_NOW = r"(?:now |successfully |all |fully |already |also |just )*"
_CLAIMS = re.compile(
    rf"{_OPENERS}(?:(?:all )?(?:done|finished|complete|completed|todo|tbd|tba)\W*$|(?:all )?done\b[,!. ]*(?:see|"
    rf"check)\b|"
    r"successfully \w+(?:ed|ten)\b|(?:i|we)(?:'ve| have) (?:now |just |already |also |successfully )*[a-z]{2,20}ed\b|"
    rf"(?:i|we)(?:'ve| have)?(?: now| just| already| also| successfully| gone ahead and)* {_DID}\b|"
    r"(?=.{0,120}$)(?:the|your|this|that|all|everything)\b(?:(?! (?:that|which|what|where|when|how|who|whose)\b) "
    r"[\w'-]{1,30}){0,6}"
    rf" (?:(?:has been|have been|was|were) {_NOW}(?:{_DID}|met|put)|(?:is|are) {_NOW}(?:completed?|done|finished|"
    rf"fulfilled|"
    r"met|ready|in place|written|created|prepared|implemented|updated|saved|delivered))"
    r"(?:\W*$|,? (?:and|as|to|in|on|for|with|by|into|at|successfully|accordingly)\b)|(?:the )?(?:task|work|job|"
    r"everything|all|"
    r"mission|request|it)(?: is| was| has been)?(?: now| all| successfully| fully)? (?:completed?|done|finished|"
    r"accomplished|"
    r"fulfilled)\b|it (?:meets|fulfils|fulfills|satisfies) (?:all|every|the)|(?:successfully )?(?:completed|"
    r"finished)(?: "
    r"successfully)?$|all (?:acceptance )?criteria (?:are|were|have been) (?:met|fulfilled|satisfied)|i(?:'m| am) "
    r"(?:all )?"
    r"(?:done|finished|ready)\b|(?:please )?(?:see|find|check|refer to|open|review|consult)\b[^.]{0,40}\b(?:attached|"
    r"attachment|file|report|above|below|document)\W*$|(?:the|my|your)(?: [\w'-]{1,20}){1,3} (?:is|are|can be found) "
    r"(?:now )?"
    r"(?:attached|enclosed|in the (?:file|attachment|document|workspace|folder|repository)|below|above|available)\W*$|"
    rf"{any_of('done')})"
)
_NOT = re.compile(r"(?:(?:not|nicht|pas|no|non|niet|inte|ikke|ei|nem|nie|não|не) |未|没有?)(?P<word>\w+)\W*")
_SPECIFIC = re.compile(r"\d|`|[\w-]+\.[a-z]{2,5}\b|://|\"[^\"]+\"|\u201c")
"""What makes a report one about something: a number, a name of a file, an address, a quotation."""
_PREAMBLE = re.compile(
    r"(?:here(?:'s| is| are)|below|this is|hier ist|voici|aquí|以下|这是|sure|certainly|of "
    r"course)\b.*[:\uff1a]$"
)
_IGNORANT = _anywhere(
    r"\b(?:cannot|can't|could not|couldn't) (?:say|tell)\b|\b(?:does not|doesn't|do not|don't) (?:say|mention|"
    r"specify|state|tell)\b|"
    r"\bnot (?:specified|known|stated|mentioned|given|in my task)\b|^unknown$|\b(?:i|we) (?:do not|don't|did not|"
    r"didn't) (?:have (?:that|this|the|any|enough) (?:information|data|detail|"
    r"answer|knowledge)|know|see (?:it|that|this) (?:mentioned|stated)|find (?:it|that|this))\b|\b(?:i'm|i am) "
    r"not (?:sure|certain|aware)\b|\b(?:i|we) (?:have no|lack) (?:information|idea|knowledge|data)\b|\b(?:isn't|"
    r"is not|wasn't|was not|aren't|not) (?:mentioned|stated|specified|given|included|contained|part of) "
    r"(?:anywhere |in |by )|\bask the (?:operator|sender|user|owner)\b|\bno information\b|\bunknown to me\b|"
    rf"{any_of('ignorant')}"
)
_CONFIRMS = re.compile(
    r"(?:(?:yes|correct|confirmed|indeed|right|ja|oui|sí|是|是的|对)[,.! "
    r"\uff0c]*)?(?:(?:this|that|it|the above|the text above) (?:is|was) (?:indeed |already )?(?:the|my|our) "
    r"(?:final |finished |complete |whole |actual )*(?:result|work|answer|text|outcome)(?: itself)?|done|"
    r"(?:\*\*)?status(?:\*\*)?:(?:\*\*)? *(?:done|success|completed|complete)|confirmed|das ist das ergebnis|"
    r"c'est le résultat|这就是结果)|(?:yes|correct|confirmed|indeed|ja|oui|sí|"
    r"是|是的)"
)


def _kind(text: str, turn: Turn) -> Kind | None:
    folded = _folded(text)
    if (_ERROR.match(text) and not _HEADING.search(text)) or _FAILED_ELEMENT.search(text):
        return Kind.FAILURE
    if _PLACEHOLDER.fullmatch(text):
        return Kind.CLAIM
    if _NOTHING.fullmatch(text) or (text != "[]" and len(text) <= _MOST_MARKS and not any(map(str.isalnum, text))):
        return Kind.NOTHING
    if "```" in text or "~~~" in text or _HEADING.search(text) or _MARKUP.search(text) or _CODE.search(text):
        return None
    if _LETTER.match(text) and _CLOSING.search(folded):
        return None
    sentences = _sentences(folded)
    if not sentences:
        return None
    if turn is Turn.ANSWER and any(map(_IGNORANT.search, sentences)):
        return Kind.IGNORANCE
    sentences = _without_detours(sentences, has_more=_LIST.search(text) is not None)
    if _LIST.search(text):
        return _of_work(sentences[:1]) or (Kind.QUESTION if _NEEDS.search(sentences[0]) else None)
    if any(words.STATUS.get(words.spelled(found[1])) == "failed" for found in _STATUS_LINE.finditer(folded)):
        return Kind.FAILURE
    if any(words.spelled(found[1]) in ("partial", "incomplete", "blocked") for found in _STATUS_LINE.finditer(folded)):
        return Kind.FAILURE
    if len(sentences) == 1 and _is_undone(sentences[0]):
        return Kind.FAILURE
    early = sentences if len(text) <= 400 else sentences[:2]
    if (kind := _of_work(early)) is not None:
        return kind
    if len(sentences) <= 2 and _CANNOT_AT_ALL.match(sentences[0]):
        return Kind.REFUSAL
    asks = [sentence for sentence in sentences if _NEEDS.search(sentence) and not _OFFER.match(sentence)]
    rest = [sentence for sentence in sentences if _is_content(sentence)]
    ends = [sentence for sentence in sentences if not _OFFER.match(sentence) or not rest]
    wants = any(map(_WANTS.search, sentences)) and any(asks_back(sentence) for sentence in sentences)
    if (asks or wants) and turn is not Turn.ANSWER:
        return Kind.QUESTION
    if not rest:
        return _of_frame(sentences)
    last = ends[-1] if ends else ""
    if len(rest) <= 3 and _promises(last, rest):
        return Kind.PROMISE
    if sum(map(len, rest)) < 160 and _promises(sentences[0], rest):
        return Kind.PROMISE
    return Kind.UNREADABLE if turn is not Turn.ANSWER and _is_unreadable(text) else None


def _is_undone(sentence: str) -> bool:
    """Whether a sentence only denies what, said alone, would be a claim without content: `not done`."""
    denied = _NOT.fullmatch(sentence)
    return denied is not None and not _is_content(denied["word"]) and _CLAIMS.match(denied["word"]) is not None


def _is_unreadable(text: str) -> bool:
    """Whether no language of its script, or none that its words are of, has phrases, and there is no number in it."""
    if len(text) > _MOST_UNREADABLE or any(map(str.isdecimal, text)):
        return False
    letters = [letter for letter in text if letter.isalpha()]
    others = sum(
        unicodedata.name(letter, "").partition(" ")[0] not in _SCRIPTS for letter in letters if letter > "\u02ff"
    )
    return 2 * others > len(letters) or is_of_no_language(text)


def _without_detours(sentences: list[str], *, has_more: bool) -> list[str]:
    """The sentences without those that say how the author did it all the same, if others hold what came of it."""
    others = [sentence for sentence in sentences if not _WORKED_AROUND.match(sentence)]
    if not others or len(others) == len(sentences):
        return sentences
    return others if has_more or any(map(_is_content, others)) else sentences


def _promises(sentence: str, content: Collection[str]) -> bool:
    return sentence not in content and bool(_PROMISES.match(sentence)) and not sentence.endswith((":", "\uff1a"))


def _of_work(sentences: Iterable[str]) -> Kind | None:
    """A refusal or a failure that one of the sentences says of the work."""
    found = list(sentences)
    if any(map(_REFUSES.search, found)):
        refused = any(map(_APOLOGY.search, found)) or not any(map(_FAILS.search, found))
        return Kind.REFUSAL if refused else Kind.FAILURE
    return Kind.FAILURE if any(_FAILS.search(one) or _is_partly(one) for one in found) else None


def _is_partly(sentence: str) -> bool:
    """Whether a sentence says that the author has done fewer than there are."""
    counts = _PARTLY.match(sentence)
    if counts is None:
        return bool(_CLAIMS.match(sentence) and _IN_PART.search(sentence))
    done, of = (int(word) if word.isdecimal() else _COUNTS.index(word) for word in counts.group("done", "all"))
    return done < of


def _is_content(sentence: str) -> bool:
    bare = sentence.strip(" *_.!\u3002\uff01")
    frame = (
        _ACK.fullmatch(bare)
        or _GREETING.fullmatch(bare)
        or _is_offer(sentence)
        or _PROMISES.match(sentence)
        or asks_back(sentence)
        or _PREAMBLE.match(sentence)
        or _APOLOGY.match(sentence)
        or (_CLAIMS.match(sentence) and not _SPECIFIC.search(sentence))
    )
    return not frame and any(map(str.isalnum, bare))


def _is_offer(sentence: str) -> bool:
    """Whether a sentence is an offer or a wish. With a condition it is one if it is about the author."""
    return bool(_OFFER.match(sentence) and (not _IF.match(sentence) or _ABOUT_ME.search(sentence)))


def _of_frame(sentences: list[str]) -> Kind | None:
    """What a text without content is."""
    if all(_GREETING.fullmatch(sentence.strip(" .!")) or not any(map(str.isalnum, sentence)) for sentence in sentences):
        return None
    if any(map(_APOLOGY.match, sentences)):
        return Kind.REFUSAL
    if any(asks_back(sentence) and not _OFFER.match(sentence) for sentence in sentences):
        return Kind.QUESTION
    if any(map(_PROMISES.match, sentences)):
        return Kind.PROMISE
    if any(map(_CLAIMS.match, sentences)):
        return Kind.CLAIM
    if any(asks_back(sentence) for sentence in sentences):
        return Kind.QUESTION
    return (
        Kind.PROMISE
        if any(_ACK.fullmatch(sentence.strip(" *_.!\u3002\uff01")) for sentence in sentences)
        else Kind.CLAIM
    )


_AROUND = " \t>#*_-\u2022"


def _folded(text: str) -> str:
    plain = text.replace("\u2019", "'").replace("\u2018", "'").replace("**", "").lower()
    return plain if plain.isascii() else unicodedata.normalize("NFC", plain)


def _sentences(folded: str) -> list[str]:
    return [bare for sentence in _BREAK.split(folded) if (bare := _without_marks(sentence))]


def _without_marks(sentence: str) -> str:
    """A sentence without the marks of a list and without pictures around it."""
    first, end = 0, len(sentence)
    while first < end and (sentence[first] in _AROUND or is_symbol(sentence[first])):
        first += 1
    while end > first and (sentence[end - 1] in _AROUND or is_symbol(sentence[end - 1])):
        end -= 1
    return sentence[first:end]
