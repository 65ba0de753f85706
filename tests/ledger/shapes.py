"""Whether JSON has the shape that a type says, of `core.explain.task_details` or `overview_details`."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from typing import (
    Any,
    Literal,
    NotRequired,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from mailboxd.core.explain.overview_details import (
    FleetRow,
    ItemDetails,
    OverviewDetails,
    ShownRepetition,
    StatusDetails,
    UnreadableStatus,
    WhyDetails,
)
from mailboxd.core.explain.task_details import (
    AncestorRow,
    ApprovalDetails,
    ApprovalRow,
    AttemptResult,
    BelowCounts,
    CheckRunDetails,
    EventRow,
    ListedMessage,
    ListedTask,
    NoticeRow,
    QuestionRow,
    ReceivedMessage,
    ShownTask,
    SpecReport,
    Split,
    Successor,
    TaskDetails,
    TaskOfList,
    TreeNode,
    WaitingTask,
    WholeMessage,
)
from mailboxd.hub.client.ask import HostsSearched
from mailboxd.ledger.reports import Report, of_executor, ready
from mailboxd.ledger.search import SearchHit
from mailboxd.ledger.task_queries import (
    Filter,
    ancestors,
    details,
    find_message,
    list_check_runs,
    list_messages,
    list_results,
    list_tasks,
    progress,
    questions,
    split,
    successor,
)

_OF_SHOW = {
    "attempts": ShownTask,
    "taken_back": ApprovalDetails,
    "depends_on": TreeNode,
    "lacks": SpecReport,
    "missed_runs": ShownRepetition,
}
"""What `show` prints, by a key that only this has."""


def well_shaped(report: Report) -> None:
    """All that the store tells of each of its tasks has, as JSON, the shape that its type says."""
    listed, _ = list_tasks(report, Filter(children=True), limit=-1)
    require(listed, list[ListedTask])
    for task in listed:
        name = task["id"]
        require(details(report, name), TaskDetails)
        require(split(report, name), Split)
        require(questions(report, name, 10), list[QuestionRow])
        require(list_results(report, name, 10, 1_000), list[AttemptResult])
        require(list_check_runs(report, name, 10), list[CheckRunDetails])
        require(ancestors(report, name), list[AncestorRow])
        require(progress(report, name), BelowCounts)
        require(report.notices(name), list[NoticeRow])
        require(of_executor(report, task["agent"], None, 10), list[WaitingTask])
        if task["parent"] is None:
            require(report.tree(name), TreeNode)
    require(list(report.events()), list[EventRow])
    messages, _ = list_messages(report, limit=1_000)
    require(messages, list[ListedMessage])
    for message in messages:
        found = find_message(report, message["id"])
        assert found is not None
        require(found[0], WholeMessage)
        require(successor(report, message["id"]), Successor | None)
        require(received := report.received(found[0]["message_id"] or ""), ReceivedMessage | None)
        assert received is not None or found[0]["direction"] == "out" or not found[0]["message_id"]
    require(ready(report, None, 10), list[WaitingTask])


def well_printed(arguments: tuple[str, ...], found: Any) -> None:
    """The JSON that a command has printed has the shape that its type says, as far as there is one."""
    match arguments:
        case ("show", *_):
            require(found, next((kind for key, kind in _OF_SHOW.items() if key in found), Any))
        case ("ls", *_):
            require(found, list[TaskOfList])
        case ("approve",) | ("approve", "--history"):
            require(found, list[ApprovalRow])
        case ("status", "--host"):
            require(found, OverviewDetails)
        case ("status", *_):
            require(found, UnreadableStatus if "error" in found else StatusDetails)
            assert "error" in found or {"health", "overview"} <= found.keys()
        case ("why", *_):
            require(found, WhyDetails if "because" in found else ShownRepetition)
        case ("log", *_):
            require(found, list[EventRow])
        case ("search", "--hosts", *_):
            require(found, HostsSearched)
        case ("search", *_):
            require(found, list[SearchHit])
        case ("fleet", *_):
            require(found, list[FleetRow])
        case ("inbox", *others) if not {"--dismiss", "--edit"} & {*others}:
            require(found, list[ItemDetails])
        case _:
            pass


def require(found: Any, kind: Any) -> None:
    """The value has, as JSON, exactly the shape that the type says."""
    wrong = [*_misfits(json.loads(json.dumps(found)), kind, "it")]
    assert not wrong, "\n".join(wrong)


def require_made_of(found: Any, kind: Any) -> None:
    """As `require`, of a value that is no JSON: its parts may be objects."""
    wrong = [*_misfits(found, kind, "it")]
    assert not wrong, "\n".join(wrong)


def _misfits(value: Any, kind: Any, where: str) -> Iterator[str]:
    """Every place at which the value is not exactly of the type. Nothing is converted: 1 is no float, and no bool."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if is_typeddict(origin):  # a generic one
        yield from _misfits(value, _filled(origin, inner[0]), where)
    elif is_typeddict(kind):
        yield from _misfits_of_keys(value, kind, where) if isinstance(value, dict) else [f"{where} is {value!r}"]
    elif origin is NotRequired:
        yield from _misfits(value, inner[0], where)
    elif origin in (Union, types.UnionType):
        yield from min((list(_misfits(value, one, where)) for one in inner), key=len)
    elif origin is tuple:
        kinds = [inner[0]] * len(value) if inner[1:] == (...,) else inner
        for number, (item, one) in enumerate(zip(value, kinds, strict=True)):
            yield from _misfits(item, one, f"{where}[{number}]")
    elif origin is Literal:
        if value not in inner:
            yield f"{where} is {value!r}"
    elif origin is dict:
        if isinstance(value, dict):
            for name, item in value.items():
                yield from _misfits(item, inner[1], f"{where}.{name}")
        else:
            yield f"{where} is {value!r}, not a dict"
    elif origin is list:
        if isinstance(value, list):
            for number, item in enumerate(value):
                yield from _misfits(item, inner[0], f"{where}[{number}]")
        else:
            yield f"{where} is {value!r}, not a list"
    else:
        plain = dict if origin is Mapping else kind
        if not isinstance(value, plain) or isinstance(value, bool) is not (plain is bool):
            yield f"{where} is {value!r}, not {plain.__name__}"


def _filled(generic: Any, inner: Any) -> Any:
    """The type in which the only variable of a generic one is `inner`."""
    hints = get_type_hints(generic, include_extras=True)

    def of(hint: Any) -> Any:
        return inner if isinstance(hint, TypeVar) else hint[inner] if getattr(hint, "__parameters__", ()) else hint

    return TypedDict(generic.__name__, {name: of(hint) for name, hint in hints.items()})  # type: ignore[operator]


def _misfits_of_keys(value: dict[str, Any], kind: Any, where: str) -> Iterator[str]:
    hints = get_type_hints(kind, include_extras=True)
    yield from (f"{where} has {name}" for name in value if name not in hints)
    for name, hint in hints.items():
        if name in value:
            yield from _misfits(value[name], hint, f"{where}.{name}")
        elif kind.__total__ and get_origin(hint) is not NotRequired:  # `__required_keys__` does not know of these
            yield f"{where} lacks {name}"
