"""One sentence for each event, as `mailboxd log`, the daemon's log, the timeline and the notes of task.md show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mailboxd.core import endings, entrance, policy
from mailboxd.core.budget import money
from mailboxd.core.events import Event, Kind, passed
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.repetition import told_of
from mailboxd.core.sanitize import first_line, one_line
from mailboxd.core.standstill import Standstill
from mailboxd.core.stopping import stopped
from mailboxd.core.times import moment
from mailboxd.core.vocabulary import TERMINAL, Phase, Waiting, WaitsFor, phase_words

_ABOUT_MESSAGES = (Kind.MESSAGE_FILED, Kind.MESSAGE_UNDELIVERED, Kind.MESSAGE_DISMISSED)


def describe(event: Event, name: str = "") -> str:
    """The event in one line; `name` is the local id of its task, if any. Unprintable characters become spaces."""
    said = _sentence(event, name)
    owner = event.data.get("owner")
    if not owner:
        return one_line(said)
    who = str(entrance.Owner(**owner))
    return one_line(
        f"{said}, from a file of {who}" if event.kind is Kind.CONFIG_CHANGED else f"{said} (a file of {who})"
    )


def summarize(event: Event, name: str = "") -> str:
    """As `describe`, of the phases passed only the last, and beside an event only where it ends or needs a person."""
    steps = passed(event)
    if not steps:
        return describe(event, name)
    last = phase_words(steps[-1]["to"])
    if event.kind is Kind.TASK_TRANSITIONED:
        said = f"{name}: {_with_reasons(last, steps)}"
    else:
        said = _headline(event, name) + (f"; {last}" if steps[-1]["to"] in TOLD else "")
    return one_line(said + _words_with_order(event, said))


TOLD = frozenset({*TERMINAL, Phase.AWAITING_APPROVAL, Phase.CIRCUIT_OPEN})
"""Phases in which a task ends or waits for a person."""


def _sentence(event: Event, name: str) -> str:
    said = _headline(event, name)
    steps = passed(event)
    if steps and event.kind is not Kind.TASK_TRANSITIONED:
        said = f"{said}; {_passage(steps)}"
    return said + _words_with_order(event, said)


def _words_with_order(event: Event, said: str) -> str:
    """What a person wrote with the order that the event follows from, unless the sentence has it."""
    given = event.data.get("given")
    if not given:
        return ""
    words = first_line(given.get("note", ""))
    label = "answer" if given["name"] == "answer" else "note"
    return f"; {label}: {words}" if words and words not in said else ""


def _passage(steps: Sequence[Mapping[str, Any]]) -> str:
    """The phases passed, each with its reason, if the event does not say it anyway."""
    return _with_reasons(" -> ".join(map(phase_words, [steps[0]["from"], *(step["to"] for step in steps)])), steps)


def _with_reasons(said: str, steps: Sequence[Mapping[str, Any]]) -> str:
    reasons = "; ".join(first_line(step["reason"]) for step in steps if step["trigger"] not in _SAID)
    return f"{said} ({reasons})" if reasons else said


_SAID = frozenset({Trigger.ATTEMPT_STARTED, Trigger.ATTEMPT_SUCCEEDED})


def _headline(event: Event, name: str) -> str:
    data = event.data
    match event.kind:
        case Kind.TASK_CREATED:
            return _created(data["task"], data["needs"])
        case Kind.TASK_TRANSITIONED:
            return f"{name}: {_passage(passed(event))}"
        case Kind.TASK_AMENDED:
            return f"{name}: {data['note'] or _renewed(data)}"
        case Kind.ORDER_HELD | Kind.ORDER_RELEASED:
            return f"{name}: {_held_order(event)}"
        case Kind.REPETITION_CREATED | Kind.REPETITION_RAN | Kind.REPETITION_CHANGED:
            return _repeated(event)
        case Kind.REMOTE_ORDER:
            return f"{one_line(data['by'])} ordered over the gateway: {data['order']}: {first_line(data['answer'])}"
        case Kind.PLAN_ADOPTED:
            count = len(data["children"])
            return f"{name}: a plan with {count} subtask{'s' * (count != 1)}: {_some(data['children'])}"
        case Kind.DOUBTED | Kind.DOUBT_DISMISSED:
            return f"{name}: {_doubt(event)}"
        case Kind.NEEDS_CHANGED:
            return f"{name}: {data.get('note') or 'its dependencies were edited'}"
        case Kind.BREAKER_OPENED:
            until = moment(data["until"], data["at"])
            return f"{data['agent']} gets no turns until {until}: {stopped(data['reason'])}"
        case Kind.BREAKER_HALF_OPEN:
            return f"{data['agent']} may try one turn"
        case Kind.BREAKER_CLOSED:
            return f"{data['agent']} gets turns again: {first_line(data['reason'])}"
        case Kind.CIRCUIT_OPENED:
            until = moment(data["held_until"], data["at"])
            return f"{name}: {stopped(data['reason'])}; without a decision it fails at {until}"
        case Kind.TASK_PUT_AWAY:
            return f"{data['local_id']}: archived: its directory is now {data['path']}"
        case Kind.INBOX_REARMED:
            return f"{data['path']} was replaced and is watched again"
        case Kind.HOST_PAUSED | Kind.HOST_RESUMED:
            return first_line(Standstill(**data["said"]).text)
        case Kind.CAP_RAISED:
            return f"{event.actor} set the cap of {data['day']} to {data['text']}"
        case Kind.ALARM:
            return f"ALARM {data['what']}: {data['why']}"
    if "message" in data or event.kind in _ABOUT_MESSAGES:
        return _message(event, name)
    return f"{name}: {_evidence(event, data)}" if name else _evidence(event, data)


def _created(task: Mapping[str, Any], needs: list[str]) -> str:
    after = f", after {len(needs)} other{'s' * (len(needs) > 1)}" if needs else ""
    return f"{task['local_id']}: created for {task['sender']}: {first_line(task['title'], 80)}{after}"


def _evidence(event: Event, data: Mapping[str, Any]) -> str:
    match event.kind:
        case Kind.ATTEMPT_STARTED:
            attempt = data["attempt"]
            harness = f", with the harness {name}" if (name := attempt.get("worker_ref")) else ""
            waits = ", waiting for its children" if attempt["waiting_for"] == Waiting.CHILDREN else ""
            return f"attempt {attempt['ordinal']} started by {attempt['executor']}{harness}{waits}"
        case Kind.ATTEMPT_CHECKPOINT:
            return first_line(data["note"]) or "in progress"
        case Kind.ATTEMPT_ENDED:
            return _ended(data)
        case Kind.ARTIFACT_RECORDED:
            return "; ".join(f"{_kind_of(one)} by {one['produced_by']}: {one['summary']}" for one in data["artifacts"])
        case Kind.EDIT_REFUSED:
            kept = f"saved as {data['kept_as']}" if data["kept_as"] else "not saved"
            if not event.task:
                return f"{data['file']} is not taken, its text is {kept}: {first_line(data['why'])}"
            return f"an edit of {data['file']} was reverted and {kept}: {first_line(data['why'])}"
        case Kind.EDIT_SETTLED:
            by = f" by {data['by']}" if data["by"] else ""
            return f"the refused {data['file']} is settled: {data['how']}{by}"
        case Kind.NOTICE_SENT:
            return f'told {data["to"]} the notice "{data["what"]}": {first_line(data["text"])}'
        case Kind.NOTICE_FAILED:
            then = "it is tried again" if data["again"] else "it was given up"
            return f'could not tell {data["to"]} the notice "{data["what"]}": {first_line(data["why"])}; {then}'
        case Kind.NOTICE_SETTLED:
            return f"the notice that did not reach people is settled: {data['how']}"
        case Kind.CONTEXT_CUT:
            size = f"{data['kept']} of {data['size']} bytes"
            return f"the result of {data['key']} was cut to {size}; in full: {data['path']}"
        case Kind.QUESTION_ASKED:
            return f"asks {data['to']}: {first_line(data['text'])}"
        case Kind.STEERED:
            by = f" from {data['by']}" if data["by"] else ""
            return f"new instructions{by}, {data['into']}: {first_line(data['text'])}"
        case Kind.TURN_ENDED:
            note = first_line(data.get("note", ""))
            return _turn(data["turn"]) + (f": {note}" if note else "")
        case Kind.USAGE_REPORTED:
            return f"{data['agent']} reports a cost of {_cost(data['usage'])}"
        case Kind.PEER_SILENT:
            until = f" until {moment(data['until'], data['at'])}" if data["until"] else ""
            return f"{data['agent']} has missed its heartbeat; waiting for it{until}"
        case Kind.PEER_WAITS:
            how = f"waits for {WaitsFor(data['waits_for']).told}: {first_line(data['why'])}"
            return f"{data['agent']} says that it {'goes on' if data['waits_for'] == WaitsFor.NOTHING else how}"
        case Kind.SENDER_TOLD:
            how = f"waits for {WaitsFor(data['waits_for']).told}: {first_line(data['why'])}"
            return f"told {data['to']} that it {'goes on' if data['waits_for'] == WaitsFor.NOTHING else how}"
        case Kind.REPLY_LATE:
            how = _LATE.get(data.get("how", ""), "{} said too late, so it changes nothing")
            return f"{how.format(data['agent'])}: {data['said']}"
        case _:
            return _judgement(event, data)


_LATE: Mapping[str, str] = {
    "stopped": "the turn of {} was stopped",
    "failed": "the turn of {}, for which nothing waits any more, failed",
    "unknown": "how the turn of {} ended, for which nothing waits any more, is unknown",
}
"""How a turn ended too late, if the agent said nothing."""


def _kind_of(artifact: Mapping[str, Any]) -> str:
    kind = str(artifact["kind"])
    return "recorded" if kind == "other" else kind.replace("_", " ")


def _asked_again(data: Mapping[str, Any]) -> str:
    """That an answer was not taken, with the first of the reasons that the agent was told."""
    why, *more = data["problems"]
    also = f" (and {len(more)} more)" if more else ""
    return f"asked {data['agent']} again ({data['purpose']} turn): {first_line(why)}{also}"


def _judgement(event: Event, data: Mapping[str, Any]) -> str:
    match event.kind:
        case Kind.ANSWER_UNCLEAR:
            return _asked_again(data)
        case Kind.REVIEW_REQUESTED:
            return f"{data['gate']}: {data['reviewer']} was asked to review"
        case Kind.REVIEW_APPENDED:
            review = data["review"]
            at = f", given at {review['given_at']}" if review.get("given_at") else ""
            by = f"{review['reviewer']}{at}"
            said = f": {first_line(review['summary'])}" if review["summary"] else ""
            return f"{review['gate']}: {review['verdict']} by {by}{said}"
        case Kind.REVIEW_LOST:
            return f"{data['gate']}: no verdict from {data['reviewer']} ({data['why']}): {first_line(data['said'])}"
        case Kind.APPROVAL_REQUESTED:
            asked = data["approval"]
            return f"approval {asked['id'][-6:].lower()} requested: {first_line(asked['requested_action'])}"
        case Kind.APPROVAL_RESOLVED:
            changes = data["changes"]
            note = f": {first_line(changes['note'])}" if changes.get("note") else ""
            one = f"approval {data['approval'][-6:].lower()}"
            if changes.get("void"):
                return f"{one} is void{note}"
            return f"{one} {changes['status']} by {changes['resolved_by']}{note}"
        case Kind.ACTION_STARTED:
            return f"action {data['approval'][-6:].lower()} started: {first_line(data['action'])}"
        case Kind.ACTION_DELAYED | Kind.ACTION_ENDED:
            changes = data["changes"]
            how = changes.get("state") or "not started yet"
            return f"action {data['approval'][-6:].lower()} {how}: {first_line(changes['summary'])}"
        case Kind.CONFIG_CHANGED:
            return policy.told(data)
        case Kind.UNDO_REQUESTED:
            return f"{data['approval'][-6:].lower()} is to be undone"
        case Kind.CHECK_ENDED:
            check = data["check"]
            return f"check {check['id']} {check['verdict']}: {first_line(check['summary'])}"
        case _:
            return str(event.kind)


def _ended(data: Mapping[str, Any]) -> str:
    """The end of an attempt: how, with what result, and what its turn cost."""
    changes = data["attempt_changes"]
    result = next((one["summary"] for one in data.get("artifacts", ()) if one["kind"] == "primary_output"), "")
    said = first_line(changes.get("error_summary", "")) or result
    cost = _spent(data["turn"]) if "turn" in data else ""
    return f"attempt {data['ordinal']} {changes['status']}{f' ({cost})' if cost else ''}{f': {said}' if said else ''}"


def _held_order(event: Event) -> str:
    """An order that ends work: that it is held for some seconds, or what became of it."""
    data = event.data
    order = endings.ordered(data["name"], data["approval"])
    if event.kind is Kind.ORDER_HELD:
        return f"{order} is held for 10 s, ordered by {data['by']}"
    return f"the held {order} is {first_line(data['how'])}"


def _doubt(event: Event) -> str:
    data = event.data
    if event.kind is Kind.DOUBT_DISMISSED:
        return f"a doubt was dismissed by {data['by']}"
    return f"in doubt: {data['about']}: {first_line(data['text'])}"


def _renewed(data: Mapping[str, Any]) -> str:
    """That the lease of a peer was renewed, which is all that is changed without a note."""
    due = data["changes"].get("due")
    return f"its reply is due by {moment(due, data['at'])}" if due else f"changed {', '.join(data['changes'])}"


def _repeated(event: Event) -> str:
    data = event.data
    if event.kind is Kind.REPETITION_CREATED:
        one = data["repetition"]
        return f"{one['name']} is repeated {one['said']}, first at {moment(one['next_at'], data['at'])}"
    if event.kind is Kind.REPETITION_CHANGED:
        return f"{data['name']}: {first_line(data['note'])}"
    runs = ", ".join(run["name"] for run in data["runs"])
    missed = f", {told}" if (told := told_of(data["passed_over"])) else ""
    return f"{data['name']}: {runs or 'no run'}{missed}; next at {moment(data['changes']['next_at'], data['at'])}"


def _turn(turn: Mapping[str, Any]) -> str:
    cost = _spent(turn)
    how = _ENDS.get(turn["outcome"], turn["outcome"])
    return f"the {turn['purpose']} turn of {turn['agent']} {how}" + (f" ({cost})" if cost else "")


_ENDS: Mapping[str, str] = {"aborted": "was stopped", "unknown": "has ended in an unknown way"}
"""How a turn ended, where its outcome is no verb."""


def _spent(turn: Mapping[str, Any]) -> str:
    """The model that a turn is reported to have used, and what it cost."""
    return ", ".join(filter(None, [first_line(turn.get("model") or ""), _cost(turn["usage"])]))


def _cost(usage: Mapping[str, Any]) -> str:
    tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    parts = [f"{tokens} tokens"] if tokens else []
    return ", ".join([*parts, *([money(usage["cost_usd"])] if usage.get("cost_usd") is not None else [])])


def _message(event: Event, name: str) -> str:
    data = event.data
    about = f"{name}: " if name else ""
    if event.kind is Kind.MESSAGE_DISMISSED:
        return f"{about}dismissed by {data['by']}: {data['name']}"
    if event.kind is Kind.MESSAGE_FILED:
        return f"filed as {data['path']}"
    if event.kind is Kind.MESSAGE_UNDELIVERED:
        return f"{about}could not be delivered to {data['to']}: {first_line(data['reason'])}"
    message = data["message"]
    kind, sender = message["type"] or "file", message["sender"] or "an unknown sender"
    if event.kind is Kind.MESSAGE_REJECTED:
        reason = message["reason"]
        how = f"; it is {came}" if (came := entrance.told(message)) else ""
        return f"rejected {message['name']} from {sender}: {first_line(reason['problem'])} ({reason['rule']}){how}"
    if event.kind is Kind.MESSAGE_SENT:
        return f"{about}sent {_one(kind)} to {message['receiver']}"
    doubt = f"; in doubt: {first_line(message['notice'])}" if message.get("notice") else ""
    came = f" ({how})" if (how := entrance.told(message)) else ""
    return f"{about}received {_one(kind)} from {sender} ({message['verdict']}): {message['name']}{came}{doubt}"


def _one(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def words_of(kind: Kind, data: Mapping[str, Any]) -> Iterator[str]:
    """What agents and people said that the sentence of an event leaves out or cuts, for a search. No tokens."""
    for source in (data, data.get("given") or {}, data.get("changes") or {} if kind in _WITH_NOTES else {}):
        for name in _WORDS:
            if isinstance(words := source.get(name), str) and words:
                yield words
    for one in (data.get("review") or {}, data.get("check") or {}, *data.get("artifacts", ())):
        yield from (str(one[name]) for name in ("summary", "uri") if one.get(name))
        for found in one.get("findings") or ():
            yield from (str(value) for name in _OF_FINDINGS if (value := found.get(name)) is not None)


_WITH_NOTES = frozenset({Kind.APPROVAL_RESOLVED, Kind.ACTION_ENDED, Kind.ACTION_DELAYED})
_WORDS = ("note", "text", "words", "answer", "summary", "why")
_OF_FINDINGS = ("severity", "message", "file", "line", "artifact_uri")
