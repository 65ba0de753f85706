"""A tree as it is drawn: all of a small one, and of a large one what fits, with the rest counted."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from mailboxd.core.inputs import Clarification, OperatorInput, Steer
from mailboxd.core.vocabulary import FAILED
from mailboxd.formats.drawing.gantt import Bar
from mailboxd.formats.drawing.graph import Edge, EdgeKind, Graph, Node
from mailboxd.formats.drawing.svg import graph_svg
from mailboxd.ledger.diagrams import MOST_CHILDREN, MOST_NODES, folded_timeline, task_graph
from mailboxd.ledger.reports import opened
from tests.cli.stage import Stage, child, make
from tests.ledger.crowd import multiply


def _outline(stage: Stage, name: str = "big", most: int = MOST_NODES) -> Graph:
    with opened(stage.ws.database) as report:
        return task_graph(report, report.find(name), link=_link, most=most)


def _link(name: str, stacked: bool) -> str:
    return f"/t/{name}{'/children' if stacked else ''}"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


def _crowd(stage: Stage, like: str, count: int, **phases: int) -> None:
    with closing(sqlite3.connect(stage.ws.database)) as db, db:
        multiply(db, like, count, phases)


def test_a_small_tree_is_drawn_whole_with_what_needs_what(stage: Stage) -> None:
    stage.create("big", child("a"), child("b", "beta", ("a",)), child("c", "alpha", (), child("d")))
    graph = _outline(stage)
    by_id = {node.id: node for node in graph.nodes}
    named = {(by_id[edge.start].label, by_id[edge.end].label, edge.lead) for edge in graph.edges}
    assert named == {
        ("big", "a", EdgeKind.CHILD),
        ("a", "b", EdgeKind.NEED),
        ("big", "c", EdgeKind.CHILD),
        ("c", "d", EdgeKind.CHILD),
    }
    assert [node.href for node in graph.nodes][:2] == ["/t/big", "/t/big.a"]
    with pytest.raises(KeyError), opened(stage.ws.database) as report:
        task_graph(report, "tsk_none")


def test_what_waits_for_a_person_is_drawn_so_and_its_attempt_runs_no_longer(stage: Stage) -> None:
    stage.create("big", child("a", "alpha"), child("b", "beta", ("a",)))
    stage.start()
    stage.clock.advance(60)
    stage.end_turn("big.a", "---\ntype: question\n---\nWhich airport?\n")
    states = {node.label: node.style.word for node in _outline(stage).nodes}
    assert states == {"big": "needs you", "a": "needs you", "b": "waiting"}
    stage.clock.advance(600)
    with opened(stage.ws.database) as report:
        drawn, _ = folded_timeline(report, report.find("big"), stage.clock.now())
    of_a = [bar for bar in drawn if isinstance(bar, Bar) and bar.row.endswith("a")]
    assert [(bar.status, bar.end is None) for bar in of_a] == [("running", False), ("needs you", True)]
    assert of_a[0].end == of_a[1].start == of_a[0].start + 60
    assert of_a[1].start in [bar.start for bar in drawn if isinstance(bar, Bar) and bar.status == "needs you"]


def _order(stage: Stage, name: str, order: OperatorInput) -> None:
    with stage.engine() as engine:
        task = engine.store.tasks.by_local_id(name)
        assert task is not None
        engine.command(task, order, "ann")


def test_the_time_of_a_question_stays_apart_when_it_is_answered(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.clock.advance(60)
    stage.end_turn("job", "---\ntype: question\n---\nWhich airport?\n")
    stage.clock.advance(300)
    _order(stage, "job", Steer("operator", "Be brief."))
    stage.clock.advance(780)
    _order(stage, "job", Clarification("operator", "The near one.", ends=False))
    stage.clock.advance(20)
    stage.end_turn("job", "The outcome.")
    stage.clock.advance(20)
    with opened(stage.ws.database) as report:
        drawn, _ = folded_timeline(report, report.find("job"), stage.clock.now())
    took = [(bar.status, (bar.end or 0) - bar.start) for bar in drawn if isinstance(bar, Bar)]
    assert took == [("succeeded", 60), ("needs you", 1080), ("succeeded", 20)]


def test_a_question_to_an_agent_is_waited_for_and_then_needs_a_person(stage: Stage) -> None:
    stage.create("job", sender="beta")
    stage.start()
    stage.clock.advance(10)
    stage.end_turn("job", "---\ntype: question\n---\nWhich airport?\n")
    stage.clock.advance(100_000)
    with stage.engine() as engine:
        engine.tick()
    stage.clock.advance(5)
    with opened(stage.ws.database) as report:
        drawn, _ = folded_timeline(report, report.find("job"), stage.clock.now())
    told = [(bar.status, bar.end and bar.end - bar.start) for bar in drawn if isinstance(bar, Bar)]
    assert told == [("running", 10), ("waiting", 100_000), ("needs you", None)]


def _tasks(graph: Graph) -> Counter[str]:
    drawn: Counter[str] = Counter()
    for node in graph.nodes:
        drawn.update(node.counts or {node.state: 1})
    return drawn


@pytest.mark.parametrize("count", [MOST_CHILDREN - 10, 20_000])
def test_of_a_large_fan_out_what_wants_a_look_is_drawn_and_the_rest_is_counted(stage: Stage, count: int) -> None:
    stage.create("big", child("a"), child("sum", "alpha", ("a",)))
    _crowd(stage, "big.a", count, failed=2, awaiting_approval=1, execution_ready=100)
    graph = _outline(stage)
    labels = {node.label for node in graph.nodes}
    assert {"big", "a-1", "a-2", "a-3"} <= labels
    assert len(graph.nodes) <= 20
    drawn = _tasks(graph)
    assert sum(drawn.values()) == count + 3
    assert drawn[FAILED] == 2
    assert len(graph_svg(graph)) < 20_000
    (stack, *_) = [node for node in graph.nodes if node.counts]
    assert stack.href == "/t/big/children"
    reached = {edge.end for edge in graph.known_edges()}
    assert reached == {node.id for node in graph.nodes[1:]}


def test_a_large_deep_tree_stops_at_its_bound_and_says_how_many_are_below(stage: Stage) -> None:
    chain = tuple(child(f"d{m}", "alpha", (f"d{m - 1}",) if m else ()) for m in range(20))
    stage.create("big", *(child(f"k{n}", "alpha", (), *chain) for n in range(30)))
    graph = _outline(stage)
    assert MOST_NODES - 25 < len(graph.nodes) <= MOST_NODES
    folded = [node for node in graph.nodes if node.below]
    assert folded
    assert all(node.below == 20 for node in folded)
    assert _outline(stage, folded[-1].title.partition(":")[0]).nodes[1:] != ()
    assert len(_outline(stage, most=10).nodes) <= 10


def test_links_are_the_callers_and_stacks_stand_between_what_they_need(stage: Stage) -> None:
    keys = [f"k{n}" for n in range(40)]
    stage.create("big", *(child(key) for key in keys), child("merge", "alpha", tuple(keys)))
    graph = _outline(stage)
    merge: Node = next(node for node in graph.nodes if node.label == "merge")
    stack = next(node for node in graph.nodes if node.counts)
    assert Edge(stack.id, merge.id) in graph.edges
    assert stack.size == 36
