"""The eleven tools of the protocol (section 6), as a table: what each takes, who is shown it, what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mailboxd.core.roles import Verb, may
from mailboxd.errors import Refused
from mailboxd.mcp import acts
from mailboxd.mcp import arguments as args
from mailboxd.mcp.acts import Answer, Call
from mailboxd.mcp.caller import Caller

V = Verb


@dataclass(frozen=True, slots=True)
class Tool:
    """`verbs`: whoever may do one of them is shown the tool. `reads`: it changes nothing. `ends`: it may end work.

    `again`: a second call with the same arguments changes nothing more.
    """

    says: str
    takes: type[args.Arguments]
    act: Callable[[Call, Any], Answer]
    verbs: frozenset[Verb]
    reads: bool = False
    ends: bool = False
    again: bool = False


def _tool(
    says: str, takes: type[args.Arguments], act: Callable[[Call, Any], Answer], *verbs: Verb, **is_: bool
) -> Tool:
    return Tool(says, takes, act, frozenset(verbs), **is_)


TOOLS: Mapping[str, Tool] = {
    "task_create": _tool("Create a root task.", args.Create, acts.create, V.CREATE, again=True),
    "task_get": _tool("Read a task: spec, state, results, reviews.", args.OfTask, acts.get, V.READ, reads=True),
    "task_transition": _tool(
        "Cancel, retry (execution_ready), or decide an open circuit.",
        args.Transition,
        acts.transition,
        V.TRANSITION,
        V.COMMAND,
        ends=True,
    ),
    "task_start_attempt": _tool("Start the next attempt now.", args.OfTask, acts.start_attempt, V.START_ATTEMPT),
    "task_record_checkpoint": _tool(
        "Report progress; extends the lease.", args.RecordCheckpoint, acts.record_checkpoint, V.CHECKPOINT
    ),
    "task_record_artifact": _tool(
        "Record a file of the workspace as evidence.", args.RecordArtifact, acts.record_artifact, V.ARTIFACT
    ),
    "task_append_review": _tool(
        "Give your verdict on a task that you were asked to review; the first one counts.",
        args.AppendReview,
        acts.append_review,
        V.REVIEW_SPEC,
        V.REVIEW_QUALITY,
        again=True,
    ),
    "task_request_approval": _tool(
        "Ask a person to approve a side effect.", args.RequestApproval, acts.request_approval, V.REQUEST_APPROVAL
    ),
    "task_resolve_approval": _tool(
        "Decide an approval.", args.ResolveApproval, acts.resolve_approval, V.RESOLVE_APPROVAL, ends=True
    ),
    "task_open_circuit": _tool(
        "Stop trying; the operator decides.", args.OpensCircuit, acts.open_circuit, V.OPEN_CIRCUIT, ends=True
    ),
    "task_list_ready": _tool("List what waits for you.", args.ListReady, acts.list_ready, V.READ, reads=True),
}


def shown(caller: Caller) -> dict[str, Tool]:
    """The tools of the caller's role."""
    return {name: tool for name, tool in TOOLS.items() if any(may(caller.role, verb) for verb in tool.verbs)}


def run(call: Call, name: str, values: object) -> Answer:
    """Do it. Raises Refused with the rule that a wrong call breaks, PlanError, WorldError.

    A tool that the role is not shown can be called all the same: the act asks the matrix, and names the rule.
    """
    tool = TOOLS.get(name)
    if tool is None:
        raise Refused("no-such-tool", f"there is no tool {name[:100]!r}", f"You have: {', '.join(shown(call.caller))}.")
    if name not in shown(call.caller):
        verbs = " or ".join(sorted(tool.verbs))
        raise Refused("permission-denied", f"the role {call.caller.role} may not {verbs}")
    return tool.act(call, args.checked(tool.takes, values))
