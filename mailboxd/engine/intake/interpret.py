"""Interprets messages from the inbox: a verdict on the file, and the input for the engine.

Every file becomes one row of `messages` with its bytes, in the same transaction as its effects; the file is
moved afterwards. So a message counts once, however often it arrives and wherever a crash occurs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import tzinfo

from mailboxd.core import handovers
from mailboxd.core.approvals import ApprovalDecision, Resolve
from mailboxd.core.conversation import SKIP
from mailboxd.core.corrections import MOST
from mailboxd.core.decision_builder import REST_SECONDS, corrects, is_rest
from mailboxd.core.effects import Bounce, Resend, Send
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.followed import name_of_unknown, unknown
from mailboxd.core.inputs import (
    Cancel,
    Clarification,
    Input,
    LookAgain,
    NewTask,
    Progress,
    Redispatch,
    Reply,
    ReviewGiven,
    ReviewKind,
    Steer,
)
from mailboxd.core.lifecycle import amend
from mailboxd.core.model import GivenVerdict, Handover, Origin, Plan, Spec, Task, Usage
from mailboxd.core.outcomes import Answer, Results, Unclear
from mailboxd.core.plans import given_to
from mailboxd.core.returned import LATELY, Before, Return, judge, number_of, why_held
from mailboxd.core.specs import apply
from mailboxd.core.times import plus, to_epoch, to_text
from mailboxd.core.vocabulary import (
    OPERATORS,
    SELF,
    AttemptStatus,
    Phase,
    as_id,
    distinct,
    local_id_of,
    may_answer,
    same_agent,
)
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import provenance, repetitions
from mailboxd.engine.intake.archive import InboxFile, note_late_rest, record_message
from mailboxd.engine.intake.provenance import Claims, Provenance
from mailboxd.engine.late_messages import is_late, was_told
from mailboxd.errors import MessageError, PlanError, Refused
from mailboxd.formats.keys import OPERATOR, Proof, Trust, name_here, require_operator
from mailboxd.formats.protocol import left_aside, no_task
from mailboxd.formats.protocol.answer import answer_of, summary_of
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.head import Place
from mailboxd.formats.protocol.messages import (
    HANDED_ON,
    AckMessage,
    AnswerMessage,
    AnyMessage,
    ApprovalMessage,
    CancelMessage,
    Message,
    Parsed,
    PlanMessage,
    ProgressMessage,
    QuestionMessage,
    ReplyMessage,
    ReviewMessage,
    SteerMessage,
    TaskMessage,
    parse_message,
)
from mailboxd.formats.protocol.spec import rewritten
from mailboxd.formats.protocol.strict_yaml import flow
from mailboxd.host.ids import earliest
from mailboxd.host.zone import named
from mailboxd.ledger.messages import OfBytes
from mailboxd.ledger.tasks import is_called

_DECIDED = frozenset({Phase.CANCELLED, Phase.QUALITY_GATE, Phase.AWAITING_APPROVAL})
"""Phases in which another text would come too late."""
_PASSING = frozenset({"too-many-open"})
"""Rules that may admit the same task later."""
_MOST_DOUBTS = 1_000
_PASSES = frozenset({Return.OPEN, Return.JUST_ENDED})
"""Why a copy is the same work that some time later would be work of its own."""
_REPORTS = (ReplyMessage, PlanMessage, QuestionMessage)
"""Messages with an answer to the work that their sender was given."""
_NOT_TAKEN = "Your message was not taken"


@dataclass(frozen=True, slots=True)
class _Returned:
    """An operator's file without an id whose bytes have made a task before."""

    what: Return
    known: OfBytes
    number: int
    """Of the next task that is made of them."""


class Intake:
    """Interprets arrivals for one engine. Use it inside `engine.batch()`."""

    def __init__(
        self,
        engine: Engine,
        *,
        accept_plain: bool = True,
        trust: Trust | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        self._engine = engine
        self._zone = zone or named(engine.settings.zone)
        self._accept_plain = accept_plain
        self._trust = trust
        self._store = engine.store

    def place(self, written_ns: int | None = None) -> Place:
        """What the words of a file mean here; `written_ns` is when it was last saved, in nanoseconds since 1970."""
        now = self._engine.clock.now()
        written = now if written_ns is None else min(now, to_text(written_ns / 1e9))
        return Place(self._engine.settings.agent, self._agents, Calendar(written, self._zone), now)

    def _agents(self) -> tuple[str, ...]:
        return tuple(self._store.meta.agents())

    def parse(self, file: InboxFile) -> Parsed | MessageError:
        """Parse a file's message; records nothing, so an incomplete file can still be deferred.

        Use it outside of transactions: a large plan takes half a second.
        """
        try:
            raw = file.raw or b""  # the inbox has checked its size
            if (refused := no_task.refusal(file.name, raw)) is not None:
                return refused
            parsed = parse_message(
                raw, file.name, max_bytes=len(raw), sha256=file.sha256, place=self.place(file.stamp.get("mtime_ns"))
            )
        except MessageError as error:
            return error
        if parsed.assumed and not self._accept_plain:
            rule = "no-frontmatter" if parsed.plain else "missing-field"
            problem = f"required headers are missing: {', '.join(parsed.assumed)}"
            return MessageError(rule, problem, "Write them; `inbox.accept_plain_files: true` does without.", file.name)
        if isinstance(parsed.message, TaskMessage):
            with suppress(MessageError):  # it is refused when it is received, with the message
                _ = parsed.message.plan
        return parsed

    def receive(self, file: InboxFile, parsed: Parsed) -> str:
        """Pass a message to the engine and record it; return its verdict, one of those in docs/messages.md."""
        message = parsed.message
        proof = self._trust.verify(file.raw or b"", message) if self._trust else Proof()
        corrected: Task | None = None
        if parsed.assumed and file.in_place and (before := self._before(file)):
            corrected = self._corrected(parsed, before[1])
            if corrected is None and self._is_rest(before, file):
                return "rejected"
        ended = corrected is not None and corrected.phase.is_terminal
        if (
            corrected is not None
            and isinstance(message, TaskMessage)
            and not (ended and differs(corrected.origin, message))
        ):
            message = message.model_copy(update={"task_id": corrected.task_id})
        returned = self._returned(file, parsed) if corrected is None else None
        task: str | None
        try:
            if self._trust:
                self._trust.admit(proof, message.from_)
            written_ns = file.stamp.get("mtime_ns")
            if returned is None or not isinstance(message, TaskMessage):
                verdict, task = self._interpret(message, parsed.sha256, proof, written_ns)
            elif returned.what.is_same:
                verdict, task = "duplicate", returned.known.task
            else:
                message = self._numbered(message, returned.number)
                held = why_held(returned.known.returns + 1) if returned.what is Return.HELD else ""
                came = self._came(message, proof, written_ns)
                verdict, task = "accepted", self.new_task(message, actor=message.from_, came=came, held=held).id
        except (MessageError, PlanError, Refused) as error:
            self.reject(file, error, message, proof)
            return "rejected"
        doubts = self._doubts(file, parsed, proof)
        warnings = [*doubts, *(f"the header {name} is missing" for name in parsed.omitted)]
        if corrected is not None:
            doubts.append(_told_of(corrected, verdict, is_same_task=task == corrected.id))
        elif verdict == "duplicate" and parsed.assumed:
            is_told = returned is not None and returned.known.is_told
            doubts = [] if is_told else [self._again(message, parsed.sha256, written_ns, returned)]
        notice = "; ".join(doubts)[:_MOST_DOUBTS] if verdict == "accepted" or parsed.assumed else ""
        record_message(self._engine, file, verdict, message, proof, task=task, warnings=warnings, notice=notice)
        return verdict

    def _doubts(self, file: InboxFile, parsed: Parsed, proof: Proof) -> list[str]:
        """A doubt about the meaning of the message, for a person to look at."""
        own, to = self._engine.settings.agent, parsed.message.to
        doubts = list(parsed.warnings)
        if isinstance(parsed.message, ReplyMessage):
            doubts += parsed.message.doubts
        if parsed.assumed and (about := left_aside.doubt(file.name)):
            doubts.append(about)
        if isinstance(parsed.message, ReplyMessage):
            try:
                _ = parsed.message.verdicts
            except MessageError as error:
                doubts.append(f"{error.problem}; its verdicts do not count")
        is_own = to is None or to == SELF or same_agent(to, own) or (self._trust is not None and self._trust.is_own(to))
        if not is_own:
            doubts.append(f"to: it names {to}, but this is the mailbox of {own}, which takes it as its own")
        return [*doubts, f"signature: {proof.problem}"] if proof.problem else doubts

    def _returned(self, file: InboxFile, parsed: Parsed) -> _Returned | None:
        """What an operator's file without an id is whose bytes have made a task before; None for any other."""
        message, now = parsed.message, self._engine.now
        has_no_id = "task_id" in parsed.assumed and message.message_id is None and message.from_ in OPERATORS
        if not has_no_id or not isinstance(message, TaskMessage):
            return None
        known = self._store.messages.of_bytes(parsed.sha256, file.stamp.get("mtime_ns"), plus(now, -LATELY))
        task = self._store.tasks.get(known.task) if known is not None and known.task else None
        if known is None or task is None:
            return None
        ended = (task.completed_at or task.updated_at) if task.phase.is_terminal else ""
        before = Before(known.unfiled, known.put_back, not ended, ended, known.returns)
        return _Returned(judge(before, now), known, number_of(task.task_id) + 1)

    def _repeats_again(self, message: AnyMessage, sha256: str, written_ns: int | None) -> bool:
        """Whether a file that came before is to repeat anew, because the repetition that it made has ended."""
        if not isinstance(message, TaskMessage) or message.repeat is None or message.message_id is not None:
            return False
        known = self._store.messages.of_bytes(sha256, written_ns, self._engine.now)
        is_other = known is not None and not (known.put_back or known.unfiled)
        return is_other and self._store.repetitions.of_work(message.from_, message.task_id) is None

    def _numbered(self, message: TaskMessage, ordinal: int) -> TaskMessage:
        """The message with an id that no work has: its own, with a number from `ordinal` on."""
        while self._store.tasks.by_work(message.from_, name := distinct(message.task_id, ordinal), None) is not None:
            ordinal += 1
        return message.model_copy(update={"task_id": name})

    def _again(self, message: AnyMessage, sha256: str, written_ns: int | None, returned: _Returned | None) -> str:
        """What a person is told who drops a text again that was taken before."""
        first = self._store.messages.first_arrival(None, sha256)
        repeats = isinstance(message, TaskMessage) and message.repeat is not None
        if first is None or (repeats and self._store.repetitions.of_work(message.from_, message.task_id) is not None):
            return "the same work is repeated already; this copy was not taken"
        task = self._store.tasks.get(first.task) if first.task else None
        work = f" as the task {task.local_id}" if task else ""
        latest = self._store.tasks.get(returned.known.task or "") if returned is not None else task
        what = returned.what if returned is not None else None
        ways = [f"run that again (`mailboxd retry {latest.local_id}`)"] if latest is not None else []
        if repeats and (known := self._store.messages.of_bytes(sha256, written_ns, self._engine.now)) is not None:
            what = Return.PUT_BACK if known.put_back else Return.UNFINISHED
            ways += ["`touch` the file before you put it back"] * known.put_back
        ways += ["change a word in it", *["drop it again later"] * (what in _PASSES)]
        why = f", because {what}" if what is not None else ""
        return (
            f"the same text was taken on {first.at[:10]} from inbox/{first.name}{work}; this copy was not{why}. "
            f"To have it done again, {', or '.join(ways)}"
        )

    def _before(self, file: InboxFile) -> tuple[str, str | None] | None:
        """The message that was just taken under the name of a text with less than its headers, and its task."""
        now = self._engine.now
        head = self._store.messages.head_of(file.name, earliest("msg", plus(now, -REST_SECONDS)))
        if head is None or self._store.messages.first_arrival(None, file.sha256 or ""):
            return None
        message, task, at = head
        is_near = is_rest(is_whole=False, in_place=file.in_place, seconds=to_epoch(now) - to_epoch(at))
        return (message, task) if is_near else None

    def _corrected(self, parsed: Parsed, task_id: str | None) -> Task | None:
        """The task of the message before a text, if the text corrects it: it is a person's, with the same title and no
        id of its own. Work that was cancelled is not corrected, nor is a result that waits for a decision about it.
        """
        message, task = parsed.message, self._store.tasks.get(task_id) if task_id else None
        if not isinstance(message, TaskMessage) or task is None or task.phase in _DECIDED:
            return None
        has_no_id = "task_id" in parsed.assumed and message.message_id is message.subtask_id is None
        of_a_person = message.from_ in OPERATORS and message.repeat is None and has_no_id
        is_same = of_a_person and (task.sender, task.title) == (message.from_, message.title)
        return task if is_same else None

    def _is_rest(self, before: tuple[str, str | None], file: InboxFile) -> bool:
        """Reject a text as the rest of the message before it, unless that was rejected and this corrects it."""
        message, task = before
        body = self._store.messages.body(message) or b""
        if self._store.messages.is_rejected(message) and corrects(body, file.raw or b""):
            return False
        error = MessageError(
            "late-tail",
            f"it counts as the rest of message {message}, which was taken from inbox/{file.name} before: it lacks"
            " headers of a message, and was not seen being renamed in",
            "Nothing of it was read. If it is a message of its own, give it another name. If it is the rest, send the"
            " whole message again, written under a hidden name and renamed.",
            file.name,
        )
        self.reject(file, error, task=task, of=message)
        note_late_rest(self._store, file.name, message, self._engine.now)
        return True

    def reject(
        self,
        file: InboxFile,
        error: MessageError | PlanError | Refused,
        message: Message | None = None,
        proof: Proof | None = None,
        *,
        task: str | None = None,
        of: str | None = None,
    ) -> None:
        """Record why a file is rejected, and notify the sender of a task, unless its work is under way.

        `of`: the message to which it belongs.
        """
        hint = error.hint[:500] or f"`mailboxd doctor {error.rule}` says what to do."
        reason: dict[str, object] = {"rule": error.rule, "problem": error.problem[:2000], "hint": hint}
        if isinstance(error, MessageError):
            reason |= {"line": error.line, "field": error.field}
        if of:
            reason["of"] = of
        owner = file.came.owner
        if owner is not None and owner.uid != os.geteuid():
            reason["owner"] = str(owner)
        again = self._store.messages.was_rejected(file.sha256)  # its sender is notified only once
        record_message(self._engine, file, "rejected", message, proof, task=task, reason=reason)
        if isinstance(message, TaskMessage) and self._is_of_chat(message):
            if not again:
                self._tell_chat(message, error)
        elif isinstance(message, TaskMessage) and not (error.rule == "id-conflict" or again or self._is_live(message)):
            bounce = Bounce(
                self._engine.new_id("msg"),
                message.from_,
                message.task_id,
                message.subtask_id or message.task_id,
                str(error),
                in_reply_to=message.message_id,
                attempt_id=message.attempt_id,
                reply_token=message.reply_token,
                may_pass=error.rule in _PASSING,
            )
            self._engine.order("", bounce)
        elif isinstance(message, _REPORTS) and not isinstance(error, Refused) and not again:
            self._tell_executor(message, file.name, error)

    def _is_of_chat(self, message: TaskMessage) -> bool:
        """Whether our agent gave this work away in a chat of its own."""
        settings, address = self._engine.settings, message.reply_to or ""
        is_ours = same_agent(message.from_, settings.agent) and bool(address)
        return is_ours and settings.refused_reply(address, message.from_) is None

    def _tell_chat(self, message: TaskMessage, error: MessageError | PlanError | Refused) -> None:
        """Tell the chat that asked for this work that it is not done: as a task that has failed."""
        if self._store.tasks.by_work(message.from_, message.task_id, message.subtask_id) is not None:
            return
        local_id = self.free_local_id(local_id_of(message.task_id, message.subtask_id))
        origin = Origin(message_id=message.message_id, reply_to=message.reply_to or "")
        about = (message.task_id, message.subtask_id, local_id, message.from_, message.title or message.task_id)
        policy = self._engine.settings.policy
        self.create(NewTask(*about, Spec(goal=message.title), policy, origin, refused=str(error)), message.from_)

    def _tell_executor(self, message: AnyMessage, name: str, error: MessageError | PlanError) -> None:
        """Tell the peer that has the work why its message was not taken, as often as an answer is asked for again."""
        task = self._child(message)
        attempt = self._store.tasks.attempt(task.id, task.attempt) if task else None
        if task is None or attempt is None or attempt.status is not AttemptStatus.RUNNING:
            return
        ours = message.attempt_id in (None, attempt.id) and may_answer(attempt.executor, message.from_)
        told = self._store.outbox.notes_sent(task.id, "steer", message.from_).values()
        if not ours or not attempt.acknowledged or sum(note.startswith(_NOT_TAKEN) for note in told) >= MOST:
            return
        why = (
            f"{_NOT_TAKEN} ({message.type} {message.message_id or name}): {error}. Send it again, corrected and whole."
        )
        self._engine.order(task.id, Send(self._engine.new_id("msg"), "steer", message.from_, why, attempt.ordinal))

    def _is_live(self, message: TaskMessage) -> bool:
        known = self._store.tasks.by_work(message.from_, message.task_id, message.subtask_id)
        return known is not None and not known.phase.is_terminal

    # Verdicts

    def _interpret(
        self, message: AnyMessage, sha256: str, proof: Proof, written_ns: int | None
    ) -> tuple[str, str | None]:
        earlier = self._store.messages.first_arrival(message.message_id, sha256, message.from_)
        if earlier is not None and not self._repeats_again(message, sha256, written_ns):
            if earlier.sha256 != sha256:
                raise Refused("id-conflict", f"message {message.message_id} was received before with other content")
            if isinstance(message, TaskMessage) and not (self._trust and self._trust.is_of_host(message.from_)):
                self._answer_again(message)
            return "duplicate", earlier.task
        match message:
            case TaskMessage():
                return self._task(message, proof, written_ns)
            case ReplyMessage() | AckMessage() | PlanMessage() | QuestionMessage() | ProgressMessage():
                return self._report(message, proof)
            case ReviewMessage():
                return self._review(message)
            case AnswerMessage() | SteerMessage() | CancelMessage():
                return self._order(message, self._person(message, proof))
            case ApprovalMessage():
                person = self._person(message, proof)
                return self._approval(message, person or require_operator(proof, message.from_))
            case _:
                raise Refused("unknown-type", f"a {message.type} cannot be handled")

    def _person(self, message: AnyMessage, proof: Proof) -> str:
        """The person on another host who sent it, if they may decide here; else empty."""
        return self._trust.person(proof, message.from_) if self._trust else ""

    def _approval(self, message: ApprovalMessage, actor: str) -> tuple[str, str | None]:
        """Take the operator's signed decision. One about an unknown request has no effect later either."""
        asked = self._store.approvals.get(message.approval_id)
        if asked is None:
            return "orphan", None
        decided = Resolve(asked.id, ApprovalDecision(message.decision), message.text.strip())
        self._engine.handle(asked.task, decided, Role.OPERATOR, actor)
        return "accepted", asked.task

    def _task(self, message: TaskMessage, proof: Proof, written_ns: int | None) -> tuple[str, str | None]:
        """Take new work, a repeat of it, or known work that is assigned again or changed (section 2, "Repeats")."""
        if message.repeat is not None:
            came = self._came(message, proof, written_ns)
            return repetitions.accept(self, self._engine, message, self._zone, came), None
        known = self._store.tasks.by_work(message.from_, message.task_id, message.subtask_id)
        if known is None:
            came = self._came(message, proof, written_ns)
            return "accepted", self.new_task(message, actor=message.from_, came=came).id
        origin = self._origin(message, known.origin.handover)
        latest = max(known.origin.attempt, 1)
        if message.attempt is None:
            origin = replace(origin, attempt=known.origin.attempt)
        elif message.attempt < latest:
            return "late", known.id
        newer = origin.attempt > latest and (origin.attempt_id is None or origin.attempt_id != known.origin.attempt_id)
        if newer or differs(known.origin, message):
            findings = message.section("Findings") or "The work was assigned again."
            needs = self._other_needs(known, message)
            spec, given_as = message.spec(), self._given_as(message)
            again = Redispatch(spec, origin, findings, message.deadline, message.text, needs, given_as)
            self._engine.handle(known.id, again, actor=message.from_)
            return "accepted", known.id
        self._reply_again(known)
        return "duplicate", known.id

    def _came(self, message: TaskMessage, proof: Proof, written_ns: int | None) -> Provenance:
        """Where new work comes from."""
        host = self._trust.host if self._trust else str
        return provenance.of(self._engine, Claims.of(message), proof, written_ns, host)

    def _answer_again(self, message: TaskMessage) -> None:
        """Send the reply of done work again whose very message has come again: the sender's copy may have been lost.

        Not for a redelivery by the hub, which its receipts answer, and not about an older attempt.
        """
        known = self._store.tasks.by_work(message.from_, message.task_id, message.subtask_id)
        if known is not None and (message.attempt is None or message.attempt >= known.origin.attempt):
            self._reply_again(known)

    def _reply_again(self, known: Task) -> None:
        """Send the stored reply of known work again, if it has ended; once, however many copies have come."""
        if not known.phase.is_terminal or self._store.outbox.is_resent(known.id):
            return
        if was_told(self._store, known):
            self._engine.order(known.id, Resend())
        else:  # its sender had cancelled the task
            self._engine.order(known.id, Send(self._engine.new_id("msg"), "reply", known.sender))

    def new_task(
        self,
        message: TaskMessage,
        role: Role = Role.ORCHESTRATOR,
        actor: str = "mailboxd",
        came: Provenance = provenance.BY_PERSON,
        repetition: str = "",
        held: str = "",
    ) -> Task:
        """Record new work, which may be a run of a repetition. Raises Refused, MessageError, PlanError."""
        settings = self._engine.settings
        depth = message.depth or 0
        most = settings.open_per_sender
        if most and self._store.tasks.has_open_from(message.from_, most):
            raise Refused("too-many-open", f"{message.from_} has {most} unfinished tasks here", "Wait for some to end.")
        if depth > settings.limits.depth:
            raise MessageError(
                "too-deep",
                f"this work is at depth {depth}, at most {settings.limits.depth} is allowed",
                "See limits.depth.",
                field="depth",
            )
        spec, local_id = message.spec(), self.free_local_id(local_id_of(message.task_id, message.subtask_id))
        before = self._store.messages.known_of(message.from_, message.task_id, message.subtask_id)
        is_cancelled = before.cancelled and (message.attempt or 1) == 1  # a later attempt was not meant
        new = NewTask(
            task_id=message.task_id,
            subtask_id=message.subtask_id,
            local_id=local_id,
            sender=message.from_,
            title=message.title or message.task_id,
            spec=spec,
            policy=apply(settings.policy, message.overrides()),
            origin=self._origin(message, came.handover, repetition),
            depth=depth,
            plan=self._plan(message, spec),
            needs=self.needs(message.depends_on, local_id, message.title) if message.depends_on else (),
            answers=message.answers or (),
            cancelled=f"cancelled by {message.from_} before it arrived" if is_cancelled else "",
            extra=tuple((name, flow(value)) for name, value in message.own_headers().items() if name != HANDED_ON),
            held="" if is_cancelled else held or self.held(came),
        )
        task = self.create(new, actor, role)
        if before.recovered and not task.phase.is_terminal:  # it ended after the backup that was restored
            assigned = f"mailbox/{before.recovered} assigned this work before"
            why = f"{assigned}, and outbox/ has its reply: the database is older"
            self._engine.record(amend(task, self._engine.now, why, held=why)[0])
        return task

    def held(self, came: Provenance) -> str:
        """Why a task that came so is put on hold; empty if it is not."""
        engine, given = self._engine, came.handover
        if given is None or came.is_ours:
            return ""
        bounds = engine.settings.handovers
        earlier = self._store.handovers.earlier(given, bounds, engine.now)
        return handovers.why_held(given, engine.settings.agent, earlier, bounds)

    def _plan(self, message: TaskMessage, spec: Spec) -> Plan | None:
        """The plan of a task; one that names another agent is given to it. Raises MessageError."""
        agent = message.agent
        if agent is None or not self._given_as(message):
            return message.plan
        if message.plan is not None:
            hint = "Write the agents into the plan, and remove the header."
            raise MessageError("unknown-field", f"it has a plan, and is given to {agent}", hint, field="agent")
        return given_to(agent, message.title or message.task_id, spec)

    def _given_as(self, message: TaskMessage) -> str:
        """The key of the subtask with which a task is given to the agent that it names; empty if that is this one."""
        agent = message.agent
        return "" if agent is None or same_agent(agent, self._engine.settings.agent) else as_id(agent)

    def _other_needs(self, known: Task, message: TaskMessage) -> tuple[str, ...] | None:
        """What known work is to follow by its newer message, if that is something else. Raises MessageError."""
        if message.depends_on is None:
            return None
        needs = self.needs(message.depends_on, known.local_id, known.title, known.id)
        return None if {*needs} == {*self._store.tasks.needs(known.id)} else needs

    def needs(self, names: Iterable[str], local_id: str, title: str, own: str = "") -> tuple[str, ...]:
        """The dependencies of a root task on those that it names: their ids, or what stands for the unknown.

        `own` is its id, if it is not new. Raises MessageError(`cycle`), with the path, if one of these waits for it.
        """
        needs: dict[str, None] = {}
        paths: list[tuple[str, tuple[str, ...]]] = []
        for name in names:
            if is_called(name, local_id, title):
                raise _circle((local_id,))
            task = self._store.tasks.root_called(name)
            needs[unknown(name) if task is None else task.id] = None
            paths += [(task.id, (local_id, task.local_id))] if task is not None else []
        self._require_no_circle(paths, local_id, title, own)
        return tuple(needs)

    def _require_no_circle(self, paths: list[tuple[str, tuple[str, ...]]], local_id: str, title: str, own: str) -> None:
        """Go on from the tasks that one follows to those that wait for it, if it is new by its name. Raises
        MessageError.
        """
        tasks, seen = self._store.tasks, set[str]()
        while paths:
            task_id, path = paths.pop()
            if task_id in seen:
                continue
            seen.add(task_id)
            for need in tasks.needs(task_id):
                missing = name_of_unknown(need)
                if need == own or (missing and is_called(missing, local_id, title)):
                    raise _circle(path)
                followed = tasks.get(need)
                if followed is not None and not followed.phase.is_terminal:
                    paths.append((need, (*path, followed.local_id)))

    def _let_follow(self, task: Task) -> None:
        """Those that wait for a task of this name now wait for this one."""
        for waiting, name in self._store.tasks.await_unknown():
            if is_called(name, task.local_id, task.title):
                needs = [task.id if one == unknown(name) else one for one in self._store.tasks.needs(waiting)]
                note = f"it follows {task.local_id}, which has arrived"
                self._engine.record(Event(Kind.NEEDS_CHANGED, waiting, {"needs": needs, "note": note}))
                self._engine.handle(waiting, LookAgain())

    def _origin(self, message: TaskMessage, handover: Handover | None, repetition: str = "") -> Origin:
        """The identifiers of a dispatch, and where it came from.

        Raises Refused for a `reply_to` that the configuration does not allow.
        """
        address = message.reply_to or ""
        if address and (why := self._engine.settings.refused_reply(address, message.from_)):
            raise Refused("reply-to", why, "The operator of this mailbox adds it to notify.reply_to; or leave it out.")
        return Origin(
            content=message.content,
            terms=message.terms,
            message_id=message.message_id,
            attempt=message.attempt or 0,
            attempt_id=message.attempt_id,
            reply_token=message.reply_token,
            root_task_id=message.root_task_id,
            traceparent=message.traceparent,
            reply_to=address,
            delegation_path=message.delegation_path or (),
            handover=handover,
            repetition=repetition,
        )

    def create(self, new: NewTask, actor: str, role: Role = Role.ORCHESTRATOR) -> Task:
        """Record a new task; inside a batch. Raises PlanError if its plan cannot be carried out."""
        created = self._engine.handle(None, new, role, actor)[0]
        task = self._store.tasks.get(str(created.task))
        if task is None:
            raise AssertionError(f"{new.local_id} was not recorded")
        self._let_follow(task)
        return task

    def free_local_id(self, wanted: str) -> str:
        ordinal = 1
        while not self._store.tasks.is_unused(found := distinct(wanted, ordinal)) or self._is_repeated(found):
            ordinal += 1
        return found

    def _is_repeated(self, name: str) -> bool:
        """Whether work that repeats is called so."""
        found = self._store.repetitions.named(name)
        return found is not None and not found.ended

    def _report(self, message: AnyMessage, proof: Proof) -> tuple[str, str | None]:
        """Take a report about an attempt from its executor."""
        task = self._child(message)
        if task is None:
            return "orphan", None
        answer = _report_of(message, self._store.tasks.declared_answers(task.id))
        if isinstance(message, ReplyMessage) and isinstance(answer, Results):
            answer = replace(answer, verdicts=self._verdicts(message, proof))
        reply = Reply(
            message.from_,
            answer,
            message.attempt_id,
            message.reply_token,
            older_attempt=self._store.tasks.had_attempt(task.id, message.attempt_id, message.from_),
            ordinal=message.attempt,
            usage=_usage(message),
        )
        events = self._engine.handle(task.id, reply, actor=message.from_)
        return ("late" if any(event.kind is Kind.REPLY_LATE for event in events) else "accepted"), task.id

    def _verdicts(self, message: ReplyMessage, proof: Proof) -> tuple[GivenVerdict, ...]:
        """The verdicts that come with a result, as far as its sender may tell them; what is unreadable is a doubt."""
        try:
            told = message.verdicts
        except MessageError:
            return ()
        trust, sender = self._trust, message.from_
        named = (replace(one, reviewer=name_here(sender, one.reviewer)) for one in told)
        return tuple(one for one in named if trust is None or trust.may_vouch(proof, sender, one.reviewer))

    def _review(self, message: ReviewMessage) -> tuple[str, str | None]:
        """Take the verdict of a reviewer. One that names no attempt is about the first, and not about a later one."""
        task = self._store.tasks.by_local_id(local_id_of(message.task_id, message.subtask_id))
        if task is None:
            return "orphan", None
        quality = task.phase is Phase.QUALITY_GATE
        said = ReviewGiven(
            ReviewKind.QUALITY if quality else ReviewKind.SPEC,
            message.verdict,
            summary_of(message),
            message.findings,
            message.attempt_id,
            message.attempt if message.attempt_id else message.attempt or 1,
        )
        role = Role.QUALITY_REVIEWER if quality else Role.SPEC_REVIEWER
        self._engine.handle(task.id, said, role, message.from_)
        return "accepted", task.id

    def _child(self, message: Message) -> Task | None:
        if message.subtask_id is None:
            return self._store.tasks.by_local_id(message.task_id)
        child = self._store.tasks.child(message.task_id, message.subtask_id)
        return child or self._store.tasks.delegated_root(message.task_id, message.subtask_id, message.from_)

    def _order(self, message: AnswerMessage | SteerMessage | CancelMessage, person: str) -> tuple[str, str | None]:
        """Take the sender's order about its task, or that of a person: an answer, new instructions, a cancel."""
        task = self._store.tasks.by_work(message.from_, message.task_id, message.subtask_id)
        if task is None and (person or message.from_ in OPERATORS):
            task = self._store.tasks.by_local_id(local_id_of(message.task_id, message.subtask_id))
        if task is None:
            return "orphan", None
        if is_late(self._store, task, message):
            return "late", task.id
        text, sender = message.text.strip(), OPERATOR if person else message.from_
        order: Input
        match message:
            case AnswerMessage():
                spec = rewritten(task.spec, text) if task.phase is Phase.SPEC_DRAFT else None
                order = Clarification(sender, text, text == SKIP, spec)
            case SteerMessage():
                order = Steer(sender, text)
            case _:
                order = Cancel(sender, text)
        self._engine.handle(task.id, order, Role.OPERATOR if person else Role.ORCHESTRATOR, person or message.from_)
        return "accepted", task.id


def _told_of(corrected: Task, verdict: str, *, is_same_task: bool) -> str:
    """What a person is told of a text that corrects the one that this task came from."""
    name = corrected.local_id
    if verdict == "duplicate":
        return f"it says the same as the file of this name just before, from which the task {name} was made"
    if is_same_task:
        return f"it was taken as a correction of the task {name}, which was made from a file of this name"
    return f"the task {name}, from a file of this name, has ended; this text was taken as work of its own"


def _report_of(message: AnyMessage, answers: tuple[str, ...]) -> Answer | Progress:
    if isinstance(message, ProgressMessage):
        return Progress(message.text, message.waits_for)
    answer = answer_of(message, answers)
    if isinstance(answer, Unclear):
        raise MessageError("unreadable", " ".join(answer.problems), "`mailboxd doctor unreadable` says what to send.")
    return answer


def _usage(message: AnyMessage) -> Usage:
    """The cost reported by a reply, with all tokens as one sum."""
    if not isinstance(message, ReplyMessage):
        return Usage()
    return Usage(output_tokens=message.usage_tokens, cost_usd=message.cost_usd)


def differs(known: Origin, again: TaskMessage) -> bool:
    """Whether known work is sent again with other content, as far as that is known."""
    return bool(known.content) and (known.content, known.terms) != (again.content, again.terms)


_MOST_SHOWN = 10
"""Tasks of a circle that are named."""


def _circle(path: tuple[str, ...]) -> MessageError:
    shown = path if len(path) <= _MOST_SHOWN else (*path[: _MOST_SHOWN - 1], "...", path[-1])
    problem = f"these would wait for each other forever: {' -> '.join((*shown, path[0]))}"
    return MessageError("cycle", problem, "Remove one of the dependencies; nothing has started.", field="depends_on")
