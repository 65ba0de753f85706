"""Drawings of graphs: everything has a place, arrows lead to the right, and no text gets out of its label."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.vocabulary import FAILED, STATES
from mailboxd.formats.drawing.graph import (
    MAX_ALIKE,
    Child,
    Collapsed,
    Edge,
    EdgeKind,
    Graph,
    Node,
    collapse,
)
from mailboxd.formats.drawing.style import STATE_STYLES, counts_text
from mailboxd.formats.drawing.svg import compute_layout, graph_svg

EVIL = "\"]; <script>alert(1)</script> & 'x' --> \x1b[31m \u202e \ud800 \\\" %%{init}%%"


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    nodes = [f"n{number}" for number in range(draw(st.integers(1, 25)))]
    pairs = st.tuples(st.integers(0, len(nodes) - 1), st.integers(0, len(nodes) - 1))
    edges = [(nodes[min(a, b)], nodes[max(a, b)]) for a, b in draw(st.lists(pairs, max_size=60)) if a != b]
    return nodes, edges


@given(dags())
def test_every_arrow_leads_to_the_right_and_nothing_overlaps(dag: tuple[list[str], list[tuple[str, str]]]) -> None:
    nodes, edges = dag
    placed = compute_layout(nodes, edges)
    assert set(placed.at) == set(nodes)
    for start, end in edges:
        assert placed.at[start][0] < placed.at[end][0]
        assert len(placed.via.get((start, end), ())) == placed.at[end][0] - placed.at[start][0] - 1
    for rank in range(placed.ranks):
        heights = sorted(at for where, at in placed.at.values() if where == rank)
        assert all(low - high >= 1 - 1e-6 for high, low in pairwise(heights))
        assert heights[0] >= -1e-6
        assert heights[-1] <= placed.height


def test_a_circle_is_drawn_all_the_same() -> None:
    placed = compute_layout(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "a")])
    assert set(placed.at) == {"a", "b", "c"}


def test_a_chain_is_drawn_on_one_line() -> None:
    nodes = [f"n{number}" for number in range(10)]
    placed = compute_layout(nodes, list(pairwise(nodes)))
    assert [placed.at[node] for node in nodes] == [(rank, placed.at["n0"][1]) for rank in range(10)]


def test_two_parents_in_the_wrong_order_do_not_cross() -> None:
    placed = compute_layout(["r", "a", "b", "x", "y"], [("r", "a"), ("r", "b"), ("a", "y"), ("b", "x")])
    assert (placed.at["a"][1] < placed.at["b"][1]) == (placed.at["y"][1] < placed.at["x"][1])


def test_two_hundred_nodes_are_drawn_each_with_its_name_and_state() -> None:
    nodes = tuple(Node(f"t{n}", f"task-{n}", STATES[n % len(STATES)], "executing", "worker") for n in range(200))
    edges = tuple(Edge(f"t{n // 3}", f"t{n}", EdgeKind.CHILD) for n in range(1, 200))
    root = ElementTree.fromstring(graph_svg(Graph(nodes, edges)))
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(text.split()[-1].startswith("task-") for text in texts) == 200
    assert {look.word for look in STATE_STYLES.values()} <= {text.split(" · ")[0] for text in texts}
    assert len(graph_svg(Graph(nodes, edges))) < 250_000


def test_the_tone_is_never_the_only_difference() -> None:
    told = [(look.word, look.symbol, look.shape) for look in STATE_STYLES.values()]
    assert len({word for word, _, _ in told}) == len(STATES)
    assert set(STATE_STYLES) == set(STATES)


@pytest.mark.parametrize("state", [*STATES, "", "state of a newer version"])
def test_foreign_text_stays_text(state: str) -> None:
    graph = Graph(
        (Node("a", EVIL, state, "", EVIL, "/t/a", EVIL), Node("b", EVIL, counts={state: 3})), (Edge("a", "b"),)
    )
    svg = graph_svg(graph, EVIL)
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg.encode()).iter()}
    assert tags <= {"svg", "style", "rect", "polygon", "path", "a", "g", "title", "text"}
    assert "\x1b" not in svg
    assert "\u202e" not in svg


# Folding


def _kids(count: int, state: str = "done", **more: object) -> list[Child]:
    return [Child(f"k{n}", f"t.k{n}", f"k{n}", state, "completed", "worker", **more) for n in range(count)]  # type: ignore[arg-type]


def _fold(kids: list[Child], room: int = 100) -> Collapsed:
    return collapse("p", "t", kids, room, lambda name, stacked: f"/{name}/{'children' if stacked else ''}")


def test_few_are_drawn_one_by_one() -> None:
    folded = _fold(_kids(MAX_ALIKE))
    assert len(folded.alone) == MAX_ALIKE
    assert folded.stacks == ()
    assert {edge.lead for edge in folded.edges} == {EdgeKind.CHILD}


def test_similar_tasks_become_a_stack_with_a_link_and_urgent_ones_stay_apart() -> None:
    kids = [*_kids(50), Child("bad", "t.bad", "bad", FAILED, "failed", "worker")]
    merge = Child(
        "merge", "t.merge", "merge", "waiting", "execution_ready", "worker", needs=frozenset(kid.id for kid in kids)
    )
    folded = _fold([*kids, merge])
    assert {"bad", "merge"} <= {kid.id for kid in folded.alone}
    (stack,) = folded.stacks
    assert stack.size + len(folded.alone) == 52
    assert stack.href == "/t/children"
    assert Edge(stack.id, "merge") in folded.edges
    assert Edge("bad", "merge") in folded.edges


@given(st.integers(2, 30), st.integers(0, 120), st.integers(1, 5))
def test_the_graph_never_exceeds_its_limit_and_counts_every_task(room: int, count: int, groups: int) -> None:
    kids = [
        Child(
            f"k{n}",
            f"t.k{n}",
            f"k{n}",
            STATES[n % len(STATES)],
            "executing",
            "w",
            needs=frozenset({f"k{n % groups}"} if n >= groups else ()),
        )
        for n in range(count)
    ]
    folded = _fold(kids, room)
    assert len(folded.alone) + len(folded.stacks) <= room
    assert len(folded.alone) + sum(stack.size for stack in folded.stacks) == count
    ids = {"p", *(kid.id for kid in folded.alone), *(stack.id for stack in folded.stacks)}
    assert all(edge.start in ids and edge.end in ids for edge in folded.edges)


def test_counts_begin_with_urgent_states() -> None:
    assert counts_text({"done": 1200, FAILED: 2, "running": 0}) == "2 ✗ done: failed, 1,200 ✓ done"
