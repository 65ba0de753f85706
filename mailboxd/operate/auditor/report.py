"""The result of an audit as text, as JSON, and as one page of HTML without script that can be handed in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from mailboxd.core.sanitize import for_log, for_page
from mailboxd.core.spending import uncosted
from mailboxd.core.vocabulary import STATES, state_words
from mailboxd.operate.auditor import storied, story
from mailboxd.operate.auditor.approvals import BY_COMMAND
from mailboxd.operate.auditor.model import Decision, Finding, Judged, Verdict
from mailboxd.operate.auditor.perform import Report
from mailboxd.operate.auditor.story import Cost

_FOLDED = 5
"""From so many findings of one kind on, the others are counted."""
_DIRECT = (
    "sent, not in their receiver's archive, and nothing shows that it took them as messages (undelivered, answered in"
    " the same turn, or on their way)"
)
_MEANING = {
    Verdict.CONSISTENT: "consistent: everything matches itself, but no key that you gave vouches for all of it",
    Verdict.WRONG: "wrong: something does not match",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A finding as it is shown, with the number of further ones of its kind."""

    finding: Finding
    more: int = 0


def folded(findings: Sequence[Finding], most: int = _FOLDED) -> Iterator[Shown]:
    """The findings in their order, of each kind at most `most`."""
    kinds: dict[tuple[str, str, bool], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.check, finding.kind, finding.missing), []).append(finding)
    for same in kinds.values():
        first = same[:most]
        for finding in first[:-1]:
            yield Shown(finding)
        yield Shown(first[-1], len(same) - len(first))


def verdict(report: Report) -> str:
    """The result in one line."""
    count = _count(report)
    if report.verdict is Verdict.PROVEN:
        by = "a key that you gave has signed all of it"
        if any(judged.proof.seq < judged.events for judged in report.archives):
            by = "the head that was noted elsewhere vouches for all of it"
        return f"proven: {by}, and everything matches"
    if report.verdict is not Verdict.WRONG:
        return _MEANING[report.verdict]
    return f"{_MEANING[Verdict.WRONG]} ({count} finding{'s' * (count != 1)})"


def _count(report: Report) -> int:
    return len(report.findings) + sum(judged.left_out for judged in report.archives)


def named(judged: Judged) -> str:
    return judged.agent or "unknown agent"


def proven(judged: Judged) -> str:
    """What a signature vouches for, in a sentence; empty if nothing is proven."""
    if not judged.proven_to:
        return ""
    whose = f"given as that of {judged.key_of}" if judged.key_of else "given without a name"
    by = f"by the key {judged.proof.key} ({whose}), signed at {judged.proof.at}"
    if judged.exported:
        by = f"the key {judged.proof.key} ({whose}) has signed the export as a whole"
    if judged.noted > judged.proof.seq:
        by = "by the head that was noted elsewhere"
    counts = judged.proven
    return (
        f"events 1 to {counts['events']}, with {counts['files']} of {judged.counts['files']} files and"
        f" {counts['approvals']} of {judged.counts['approvals']} approvals: {by}"
    )


def unproven_word(judged: Judged) -> str:
    """What is not proven is consistent, unless something speaks against it."""
    return "not proven" if judged.contradicted else "consistent"


def consistent(judged: Judged) -> str:
    """What only matches itself, in a sentence; empty if all is proven."""
    if not judged.events or judged.proven_to >= judged.events:
        return ""
    first = judged.proven_to + 1
    which = f"event {first}" if first == judged.events else f"events {first} to {judged.events}"
    if judged.contradicted:
        return f"{which}: {judged.contradicted}"
    if judged.proven_to:
        return f"{which}: after the last signed head"
    if judged.proof.unknown:
        return f"{which}: signed with a key that was not given ({', '.join(sorted(judged.proof.unknown))})"
    if not judged.counts["heads"]:
        return f"{which}: nothing in this journal is signed"
    return f"{which}: no key that was given has signed them"


def states(judged: Judged) -> dict[str, int]:
    """How many tasks are in each state, as far as the phases are known."""
    counts: dict[str, int] = {}
    for phase, count in judged.tasks.items():
        try:
            words = state_words(phase)
        except (ValueError, KeyError):
            words = "?"
        counts[words] = counts.get(words, 0) + count
    return {words: counts[words] for words in (*STATES, "?") if words in counts}


def counted(count: int, thing: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count} {thing}{'s' * (count != 1)}"


def _of_state(state: str, judged: Judged) -> str:
    """`3 done, 1 of them failed`; empty if no task is in this state."""
    found = {words: count for words, count in states(judged).items() if words.partition(": ")[0] == state}
    results = [f"{count} of them {words.partition(': ')[2]}" for words, count in found.items() if ": " in words]
    return ", ".join([f"{sum(found.values())} {state}", *results]) if found else ""


def in_short(judged: Judged) -> str:
    """How much there is."""
    counts = judged.counts
    period = f"{judged.first_at[:10]} to {judged.last_at[:10]}" if judged.first_at else "no events"
    tasks = "; ".join(_of_state(state, judged) for state in (*STATES, "?") if _of_state(state, judged))
    parts = [counted(counts[f"{thing}s"], thing) for thing in ("event", "task", "message", "file", "approval")]
    parts[1] += f" ({tasks})" if tasks else ""
    return f"{period}; {', '.join(parts)}"


def spent(cost: Cost) -> str:
    """What turns cost, in a sentence; empty if there were none."""
    tokens = cost.input_tokens + cost.output_tokens
    parts = []
    if cost.turns:
        parts.append(f"{cost.cost_usd:.4f} USD, {tokens} tokens in {counted(cost.turns, 'turn')}")
    if cost.unknown:
        parts.append(uncosted(cost.unknown))
    if cost.reported_usd or cost.reported_tokens:
        parts.append(f"peers say of their own: {cost.reported_usd:.4f} USD, {cost.reported_tokens} tokens")
    return "; ".join(parts)


def decided(one: Decision) -> str:
    """A decision in a sentence."""
    before = f"{one.before}, then " if one.before else ""
    text = (
        f"{one.task}: {before}{one.status}"
        + (f" by {one.by}" if one.by else "")
        + (f", {short(one.at)}" if one.at else "")
    )
    text += f" ({one.note})" if one.before and one.note else ""
    text += f": {one.action or one.id}"
    if one.performed:
        text += f" -> {one.performed}" + (f", {short(one.performed_at)}" if one.performed_at else "")
    if one.file and one.signed != BY_COMMAND:
        text += f"; signature of its file: {one.signed}"
    return text


def short(at: str) -> str:
    """A time to the second, as a log has it."""
    return f"{at[:10]} {at[11:19]}Z" if at[10:11] == "T" else at


def lines(report: Report, most: int = _FOLDED) -> Iterator[str]:
    """The report as lines of text without control characters, the verdict first."""
    yield verdict(report)
    for judged in report.archives:
        yield ""
        yield for_log(f"{named(judged)} ({judged.form}, {judged.given}): {judged.verdict}")
        yield from _entries(judged, most)
    if len(report.archives) > 1:
        yield ""
        yield f"between the archives: messages that both have, with the same bytes: {report.crossed.both}"
        if report.crossed.direct:
            yield f"  {_DIRECT}: {report.crossed.direct}"


def _entries(judged: Judged, most: int) -> Iterator[str]:
    yield from _entry("in short", [in_short(judged)])
    yield from _entry("proven", filter(None, [proven(judged)]))
    yield from _entry(unproven_word(judged), filter(None, [consistent(judged)]))
    yield from _entry("costs", filter(None, [spent(judged.story.total)]))
    for word, of, count in (("files", "rejected", "rejected"), ("policy", "change", "changes")):
        if number := judged.story.counts[count]:
            many = "s" * (of == "change" and number != 1)
            yield from _entry(word, [f"{number} {of}{many} (see --html or --json)"])
    for word, missing in (("wrong", False), ("missing", True)):
        found = [finding for finding in judged.findings if finding.missing is missing]
        yield from _entry(word, map(_folded_text, folded(found, most)))
    shown = judged.decisions[-most * 4 :]
    cut = [f"{len(judged.decisions) - len(shown)} earlier ones: --json has all"] * (len(shown) < len(judged.decisions))
    yield from _entry("approvals", [*cut, *(f"{one.id[-6:].lower()} {decided(one)} ({one.where})" for one in shown)])
    yield from _entry("note", judged.notes)


def _folded_text(shown: Shown) -> str:
    more = f" [and {shown.more} more of this kind: --json has all]" if shown.more else ""
    return f"{shown.finding.text}{more}"


def _entry(word: str, texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield for_log(f"  {word:<11} {text}")


def facts(report: Report) -> dict[str, Any]:
    """The whole report as JSON values."""
    return {
        "verdict": report.verdict.value,
        "findings": _count(report),
        "archives": [_facts(judged) for judged in report.archives],
        "between": asdict(report.crossed),
    }


def _facts(judged: Judged) -> dict[str, Any]:
    return {
        "agent": judged.agent,
        "given": judged.given,
        "form": judged.form,
        "verdict": judged.verdict.value,
        "period": [judged.first_at, judged.last_at],
        "events": judged.events,
        "proven": {**judged.proof.facts(), "key_of": judged.key_of or None, "to": judged.proven_to, **judged.proven},
        "contradicted": judged.contradicted or None,
        "counts": judged.counts,
        "states": judged.tasks,
        "findings": [_finding(finding) for finding in judged.findings],
        "approvals": [_decision(one) for one in judged.decisions],
        "notes": judged.notes,
        **story.facts(judged.story),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "level": "missing" if finding.missing else "wrong",
        "check": finding.check.value,
        "kind": finding.kind,
        "where": str(finding.where),
        "file": finding.where.file,
        "line": finding.where.line or None,
        "problem": finding.problem,
    }


def _decision(one: Decision) -> Mapping[str, Any]:
    return {**asdict(one), "where": str(one.where)}


# The page


def page(report: Report, made_at: str) -> str:
    """One file of HTML: no script, nothing from elsewhere; readable printed, in light and in dark."""
    return _environment().get_template("report.html").render(report=report, made_at=made_at)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("mailboxd.operate.auditor"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_for_template,
    )  # fmt: skip
    found.globals |= {
        "verdict": verdict, "folded": folded, "named": named, "proven": proven, "consistent": consistent,
        "unproven_word": unproven_word,
        "states": states, "short": short, "in_short": in_short, "DIRECT": _DIRECT, "spent": spent,
        "counted": counted, **storied.CELLS,
    }  # fmt: skip
    return found


def _for_template(value: object) -> object:
    return for_page(value) if type(value) is str else value
