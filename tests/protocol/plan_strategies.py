"""Hypothesis strategies for plans, texts and task files: everything that mailboxd itself can produce."""

from __future__ import annotations

from hypothesis import strategies as st

from mailboxd.core.model import Condition, Flow, Overrides, PlannedChild
from mailboxd.core.vocabulary import MODEL, Gate, Join, Runtime, Synthesis
from mailboxd.formats.protocol.plan import Dag, DagNode
from mailboxd.formats.protocol.strict_yaml import flow

KEYS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,8}", fullmatch=True) | st.sampled_from(
    ["1e3", "007", "no", "null", "2026-01-01", "0x1F", "a.b", "self"]
)
# What a marker of ours, of YAML or of markdown is made of, so that the laws meet it often.
PIECES = st.sampled_from(
    (
        *("a", "# ", "## DAG", "### x", "## Results", "---", "\\", "\\## DAG", "```", "~~~", "````yaml", "\n", "\n\n"),
        *(
            " ",
            "    ",
            "\t",
            "subtasks:",
            ": ",
            " #",
            '"',
            "'",
            "- ",
            "\u2028",
            "\x85",
            "\x1b[31m",
            "é",
            "\U0001f600",
            "\x7f",
        ),
    )
)


def storable() -> st.SearchStrategy[str]:
    """Any text without what neither YAML nor UTF-8 can carry."""
    alphabet = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
    return st.text(alphabet, max_size=30) | st.lists(PIECES, max_size=12).map("".join)


def lines_of_text() -> st.SearchStrategy[str]:
    return st.lists(storable(), min_size=1, max_size=4).map("\n".join)


def overrides() -> st.SearchStrategy[Overrides]:
    return st.just(Overrides()) | st.builds(
        Overrides,
        max_attempts=st.none() | st.integers(1, 100),
        timeout=st.none() | st.integers(1, 604_800),
        idempotent=st.none() | st.booleans(),
        gates=st.none() | st.frozensets(st.sampled_from(Gate)),
        reviewers=st.none() | st.lists(KEYS, unique=True, max_size=3).map(tuple),
        synthesis=st.none() | st.sampled_from(Synthesis),
        join=st.none() | st.sampled_from(Join),
        priority=st.none() | st.integers(-100, 100),
        deadline=st.none() | st.just("2026-11-21T02:07:53.120Z"),
        budget_usd=st.none() | st.integers(0, 10**9).map(lambda micros: micros / 1_000_000),
        runtime=st.none() | st.sampled_from(Runtime),
        harness=st.none() | KEYS,
        model=st.none() | st.from_regex(MODEL, fullmatch=True),
    )


def extras() -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    names = st.sampled_from(["x-colour", "x-note", "x-1e3", "x-with space", "x-a: b"])
    values = st.recursive(
        storable().filter(bool), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2)
    )
    return st.dictionaries(names, values.map(flow), max_size=2).map(lambda found: tuple(found.items()))


def flows() -> st.SearchStrategy[Flow]:
    answers = st.lists(lines_of_text().filter(str.strip), min_size=1, max_size=3).map(tuple)
    when = st.lists(st.builds(Condition, answers, KEYS, st.booleans()), max_size=2, unique_by=lambda one: one.of)
    until = st.none() | st.builds(Condition, answers, st.just("") | KEYS, st.booleans())
    declared = st.just(()) | st.just(("yes", "no")) | st.just(("keep", "1e3", "lend, or not"))
    return st.just(Flow()) | st.builds(Flow, when.map(tuple), st.booleans(), st.integers(0, 100), until, declared)


def children(depth: int = 1) -> st.SearchStrategy[PlannedChild]:
    return st.builds(
        PlannedChild,
        key=KEYS,
        agents=st.lists(KEYS, min_size=1, max_size=3).map(tuple),
        description=lines_of_text().filter(bool),
        # never another spelling of a key: that would be read as the child that it can only mean
        depends_on=st.lists(KEYS.map("need.{}".format), unique=True, max_size=3).map(tuple),
        instructions=lines_of_text(),
        expected_output=lines_of_text(),
        goal=lines_of_text(),
        context=lines_of_text(),
        scope_out=lines_of_text(),
        acceptance_criteria=st.lists(lines_of_text().filter(str.strip), max_size=2).map(tuple),
        overrides=overrides(),
        flow=flows(),
        claims=st.lists(st.sampled_from(["src/**", "a b/*.md", "x"]), unique=True, max_size=2).map(tuple),
        children=_distinct(children(depth - 1)) if depth else st.just(()),
        extra=extras(),
    )


def _distinct(nodes: st.SearchStrategy[PlannedChild]) -> st.SearchStrategy[tuple[PlannedChild, ...]]:
    return st.lists(nodes, max_size=3, unique_by=lambda child: child.key).map(tuple)


def nodes() -> st.SearchStrategy[tuple[DagNode, ...]]:
    times = st.sampled_from(["", "2026-11-21T02:07:53.120Z"])
    node = st.builds(
        DagNode,
        children(),
        st.sampled_from(["", "pending", "dispatched", "done", "failed", "blocked", "cancelled"]),
        times,
        times,
        lines_of_text(),
    )
    return st.lists(node, max_size=4, unique_by=lambda item: item.key).map(tuple)


def dags() -> st.SearchStrategy[Dag]:
    return st.builds(Dag, nodes(), st.none() | st.sampled_from(Synthesis))
