"""The section `## DAG` of a plan or a task.md: YAML <-> `core.model.Plan` (protocol section 3).

    subtasks:
      research:
        agent: scout                  # [a, b, c] is a broadcast; self is this agent
        description: Find the sources
        depends_on: []                # or "a, b"
        when: {check: approve}        # optional, like needs, rounds and until: see `core.model.Flow`
        instructions: ...             # optional, like the other parts of a spec, the optional headers of protocol
                                      # section 2, and `subtasks:`, a nested plan
        x-ticket: OPS-12              # keys that begin with `x-` are preserved, other unknown ones refused
    synthesis: agent

Only the form is checked here; `core.plans` checks the graph (cycles, unknown names, limits). `status`,
`dispatched_at`, `completed_at` and `result_summary` are state: ignored in a plan, read from a task.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mailboxd.core.checks import path_problem
from mailboxd.core.model import NO_FLOW, Condition, Flow, Plan, PlannedChild
from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.core.specs import criteria
from mailboxd.core.vocabulary import SELF, is_agent, is_id
from mailboxd.errors import MessageError
from mailboxd.protocol import strict_yaml
from mailboxd.protocol.headers import ID_RULE, OVERRIDES, Source, choice, integer, override_headers
from mailboxd.protocol.markdown import block_end, fenced
from mailboxd.protocol.spec import action_lines, actions_of, checks_of, render_checks
from mailboxd.protocol.strict_yaml import Path, Value, Yaml, block, flow, scalar, value_text

MAX_BYTES = 4 * 1024 * 1024
MAX_EVENTS = 600_000
"""Twice what 10,000 children with eight fields and five dependencies each need."""
MAX_DEPTH = 64
"""YAML levels; a nested plan takes two."""

STATE = ("status", "dispatched_at", "completed_at", "result_summary")
_TEXTS = ("instructions", "expected_output", "goal", "context", "scope_in", "scope_out", "inputs", "outputs", "risks")
_FLOW = ("when", "needs", "rounds", "until")
_OWN = (
    *("agent", "description", "depends_on", *_FLOW, "claims", *_TEXTS),
    *("acceptance_criteria", "checks", "planned_actions", "subtasks"),
)
MAX_ROUNDS = 100
_OPERATORS = {"in", "not"}
_ANSWERS = "Write the answer, `{in: [...]}` or `{not: ...}`."
_TOP = ("subtasks", "synthesis")
_START = re.compile(r"(?:subtasks|synthesis) *:|\{")


@dataclass(frozen=True, slots=True)
class DagNode:
    """A child in a DAG: its plan and its state. Times and status are text; empty = absent."""

    planned: PlannedChild
    status: str = ""
    dispatched_at: str = ""
    completed_at: str = ""
    result_summary: str = ""

    def __post_init__(self) -> None:
        # The summary is foreign text and must fit on one line of YAML.
        object.__setattr__(self, "result_summary", storable_line(self.result_summary))

    @property
    def key(self) -> str:
        return self.planned.key


@dataclass(frozen=True, slots=True)
class Dag:
    """The children of a task in order, and how their results are combined."""

    nodes: tuple[DagNode, ...]
    synthesis: str | None = None

    @property
    def plan(self) -> Plan:
        return Plan(tuple(node.planned for node in self.nodes), self.synthesis)


def parse_plan(yaml_text: str, *, path: str, first_line: int = 1) -> Plan:
    """The plan in `yaml_text`, bare or in one fenced block; `first_line` is its first line in the file `path`.

    At most 4 MiB. Raises MessageError with line and field: the rules of `strict_yaml`, and `missing-field`,
    `unknown-field`, `wrong-type`, `field-range`, `bad-time`, `bad-id`, `ambiguous-plan`, `unterminated`, `too-large`.
    """
    return parse_dag(yaml_text, path=path, first_line=first_line).plan


def parse_dag(yaml_text: str, *, path: str, first_line: int = 1) -> Dag:
    """Like `parse_plan`, with the state of the children."""
    if len(yaml_text) > MAX_BYTES or len(yaml_text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise MessageError(
            "too-large", f"the plan is larger than {MAX_BYTES} bytes", "Split it.", path=path, line=first_line
        )
    text, first_line = _bare(yaml_text, path, first_line)
    loaded = strict_yaml.load(text, path=path, first_line=first_line, max_events=MAX_EVENTS, max_depth=MAX_DEPTH)
    source = Source(path, first_line, loaded.lines, loaded.plain)
    top = source.mapping(loaded.value, ())
    for key in top:
        if key not in _TOP:
            source.fail("unknown-field", f"a plan has no key {key!r}", (key,), _meant(key, _TOP))
    if "subtasks" not in top:
        source.fail("missing-field", "the plan has no subtasks", (), "Write `subtasks:` with one entry per child.")
    nodes = _nodes(source, top["subtasks"], ("subtasks",))
    synthesis = top.get("synthesis", "")
    return Dag(nodes, source.header("synthesis", synthesis, ("synthesis",)) if synthesis != "" else None)


def blank_children(yaml_text: str, *, path: str, first_line: int = 1) -> tuple[str, ...]:
    """The names in a plan with nothing else filled in, as clawflow's message.py writes one; else empty."""
    text, first_line = _bare(yaml_text, path, first_line)
    loaded = strict_yaml.load(text, path=path, first_line=first_line, max_events=MAX_EVENTS, max_depth=MAX_DEPTH)
    top = loaded.value if isinstance(loaded.value, dict) else {}
    nodes = top.get("subtasks", "")
    if not isinstance(nodes, dict) or not all(isinstance(node, dict) and _is_blank(node) for node in nodes.values()):
        return ()
    return tuple(key for key in nodes if is_id(key))


def _is_blank(node: Mapping[str, Yaml]) -> bool:
    return all(value in ("", []) or (name, value) == ("status", "pending") for name, value in node.items())


def _bare(yaml_text: str, path: str, first_line: int) -> tuple[str, int]:
    """The YAML itself: the whole text, or the content of its one fenced block without the prose around it."""
    lines = yaml_text.split("\n")
    inside, unclosed = fenced(lines)
    start = next((i for i, line in enumerate(lines) if inside[i] or _START.match(line)), None)
    if start is None or not inside[start]:
        return yaml_text, first_line
    if unclosed is not None:
        raise MessageError(
            "unterminated", "the fenced block is not closed", "Close it.", path, first_line + unclosed, "DAG"
        )
    end = block_end(lines, start)
    if any(inside[end + 1 :]):
        raise MessageError(
            "ambiguous-plan",
            "there is more than one fenced block",
            "Put the whole plan into one block.",
            path,
            first_line + inside.index(True, end + 1),
            "DAG",
        )
    return "\n".join(lines[start + 1 : end]), first_line + start + 1


def _nodes(source: Source, value: Yaml, where: Path) -> tuple[DagNode, ...]:
    nodes = []
    for key, fields in source.mapping(value, where).items():
        here = (*where, key)
        if not is_id(key):
            source.fail("bad-id", f"{excerpt(key)} is not a valid name for a child", here, ID_RULE)
        node = source.mapping(fields, here)
        state = [source.text(node.get(name, ""), (*here, name)) for name in STATE]
        nodes.append(DagNode(_child(source, key, node, here), *state))
    return tuple(nodes)


def _child(source: Source, key: str, node: Mapping[str, Yaml], where: Path) -> PlannedChild:
    def text(name: str) -> str:
        return source.text(node.get(name, ""), (*where, name))

    children = tuple(inner.planned for inner in _nodes(source, node.get("subtasks", ""), (*where, "subtasks")))
    texts = {name: text(name) for name in _TEXTS}
    said = texts["goal"].strip() or texts["instructions"].strip()
    description = text("description") or said.partition("\n")[0]
    agents = source.names(node.get("agent", ""), (*where, "agent"), is_agent) or ((SELF,) if children else ())
    missing = [name for name, given in (("agent", agents), ("description", description)) if not given]
    if missing:
        source.fail("missing-field", f"child {key} has no {' and no '.join(missing)}", where)
    return PlannedChild(
        key=key,
        agents=agents,
        description=description,
        depends_on=tuple(dict.fromkeys(source.names(node.get("depends_on", ""), (*where, "depends_on")))),
        **texts,
        acceptance_criteria=_criteria(source, node.get("acceptance_criteria", ""), (*where, "acceptance_criteria")),
        checks=checks_of(source, node.get("checks", ""), (*where, "checks")),
        planned_actions=actions_of(source, node.get("planned_actions", ""), (*where, "planned_actions")),
        overrides=source.overrides(node, where),
        flow=_flow(source, node, where),
        claims=_claims(source, node.get("claims", ""), (*where, "claims")),
        children=children,
        extra=_extra(source, node, where),
    )


def _criteria(source: Source, value: Yaml, where: Path) -> tuple[str, ...]:
    """A list of criteria, or a text with a list in it."""
    if isinstance(value, str):
        return criteria(value)
    if not isinstance(value, list):
        source.fail("wrong-type", "the acceptance criteria are not a list", where, "Write `- ...` for each.")
    return tuple(text for item in value if (text := source.text(item, where)).strip())


def _claims(source: Source, value: Yaml, where: Path) -> tuple[str, ...]:
    """Patterns of paths below the workspace."""
    items = value if isinstance(value, list) else [part.strip() for part in source.text(value, where).split(",")]
    claims = tuple(dict.fromkeys(source.text(item, where) for item in items if item != ""))
    for claim in claims:
        if problem := path_problem(claim):
            source.fail("wrong-type", f"{excerpt(claim)}: {problem}", where, "Expected: patterns like `src/**`.")
    return claims


def _flow(source: Source, node: Mapping[str, Yaml], where: Path) -> Flow:
    said = {name: node[name] for name in _FLOW if node.get(name, "") != ""}
    if not said:
        return NO_FLOW
    when = source.mapping(said.get("when", ""), (*where, "when"))
    until, of = said.get("until", ""), ""
    if isinstance(until, dict) and len(until) == 1 and not {*until} <= _OPERATORS:
        ((of, until),) = until.items()
    return Flow(
        when=tuple(_condition(source, answer, (*where, "when", key), key) for key, answer in when.items()),
        needs_any=source.convert(choice(str, ("all", "any")), said.get("needs", "all"), (*where, "needs")) == "any",
        rounds=source.convert(integer(1, MAX_ROUNDS), said["rounds"], (*where, "rounds")) if "rounds" in said else 0,
        until=_condition(source, until, (*where, "until"), of) if until != "" else None,
    )


def _condition(source: Source, value: Yaml, where: Path, of: str = "") -> Condition:
    """An answer, `{in: [several]}` or `{not: one or several}`."""
    negated = False
    if isinstance(value, dict):
        if len(value) != 1 or not {*value} <= _OPERATORS:
            source.fail("wrong-type", "this is not a condition", where, _ANSWERS)
        ((operator, value),) = value.items()
        negated = operator == "not"
    answers = tuple(source.text(one, where) for one in (value if isinstance(value, list) else [value]))
    if not answers or not all(one.strip() for one in answers):
        source.fail("wrong-type", "the condition names no answer", where, _ANSWERS)
    return Condition(answers, of, negated)


def _extra(source: Source, node: Mapping[str, Yaml], where: Path) -> tuple[tuple[str, str], ...]:
    unknown = [key for key in node if key not in _OWN and key not in STATE and key not in OVERRIDES]
    for key in unknown:
        if key == "approved":
            hint = "Only a person approves, with `mailboxd approve`."
            source.fail("unknown-field", "a plan cannot approve anything", (*where, key), hint)
        if not key.startswith("x-"):
            problem = f"a child has no key {excerpt(key)}"
            source.fail("unknown-field", problem, (*where, key), _meant(key, (*_OWN, *OVERRIDES)))
    return tuple((key, flow(node[key])) for key in unknown)


def _meant(key: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(key[:64], known, 1, cutoff=0.55)
    return f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(known)}. Your own begin with x-."


def render_dag(dag: Dag) -> str:
    """The YAML of `dag` without a fence, ending with a newline. `parse_dag(render_dag(dag)) == dag`."""
    lines = ["subtasks:" if dag.nodes else "subtasks: {}"]
    for node in dag.nodes:
        _add_child(lines, node.planned, "  ")
        lines += [f"    {name}: {scalar(value)}" for name in STATE if (value := getattr(node, name))]
    if dag.synthesis is not None:
        lines.append(f"synthesis: {dag.synthesis}")
    return "\n".join(lines) + "\n"


def _flow_keys(said: Flow) -> Iterator[tuple[str, Value]]:
    if said.when:
        yield "when", {condition.of: _answers(condition) for condition in said.when}
    if said.needs_any:
        yield "needs", "any"
    if said.rounds:
        yield "rounds", str(said.rounds)
    if said.until is not None:
        yield "until", {said.until.of: _answers(said.until)} if said.until.of else _answers(said.until)


def _answers(condition: Condition) -> Value:
    answers: Value = condition.answers[0] if len(condition.answers) == 1 else list(condition.answers)
    if condition.negated:
        return {"not": answers}
    return answers if isinstance(answers, str) else {"in": answers}


def _add_child(lines: list[str], child: PlannedChild, indent: str) -> None:
    inner = indent + "  "
    lines.append(f"{indent}{scalar(child.key)}:")
    lines.append(f"{inner}agent: {flow(child.agents[0] if len(child.agents) == 1 else child.agents)}")
    lines.append(f"{inner}description: {block(child.description, inner + '  ')}")
    lines.append(f"{inner}depends_on: {flow(child.depends_on)}")
    lines += [f"{inner}{name}: {block(text, inner + '  ')}" for name in _TEXTS if (text := getattr(child, name))]
    if child.acceptance_criteria:
        lines.append(f"{inner}acceptance_criteria:")
        lines += [f"{inner}  - {scalar(criterion)}" for criterion in child.acceptance_criteria]
    if child.checks:
        lines.append(f"{inner}checks:")
        lines += [f"{inner}  {line}" for line in render_checks(child.checks).split("\n")]
    if child.planned_actions:
        lines.append(f"{inner}planned_actions:")
        lines += [f"{inner}  {line}" for line in action_lines(child.planned_actions).split("\n")]
    lines += [f"{inner}{name}: {value_text(value)}" for name, value in override_headers(child.overrides).items()]
    lines += [f"{inner}{name}: {flow(value)}" for name, value in _flow_keys(child.flow)]
    if child.claims:
        lines.append(f"{inner}claims: {flow(child.claims)}")
    lines += [f"{inner}{scalar(key)}: {value}" for key, value in child.extra]
    if child.children:
        lines.append(f"{inner}subtasks:")
        for grandchild in child.children:
            _add_child(lines, grandchild, inner + "  ")
