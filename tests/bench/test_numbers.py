"""What the bench makes of its measurements: shapes, samples, goals, the page."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import goals, graphs, plots, report
from bench.measure import Stats, ratio


@pytest.mark.parametrize(
    ("shape", "nodes", "edges"),
    [("chain", 50, 49), ("fan", 50, 96), ("random", 50, 150), ("layered", 50, 400), ("large", 50, 150)],
)
def test_a_shape_has_its_nodes_and_edges_and_no_cycle(shape: str, nodes: int, edges: int) -> None:
    graph = graphs.SHAPES[shape](nodes)
    assert (len(graph), sum(map(len, graph))) == (nodes, edges)
    assert len(list(TopologicalSorter(dict(enumerate(graph))).static_order())) == nodes
    assert graph == graphs.SHAPES[shape](nodes)


def test_a_sample_is_told_as_median_quartiles_and_ends() -> None:
    stats = Stats.of([5, 1, 2, 4, 3], "ms")
    assert (stats.p50, stats.q1, stats.q3, stats.min, stats.max, stats.p99, stats.n) == (3, 2, 4, 1, 5, 5, 5)
    assert Stats.of(list(range(1, 201)), "ms").p99 == 198
    assert Stats.of([7], "s").p50 == 7
    with pytest.raises(ValueError, match="nothing was measured"):
        Stats.of([], "ms")


def test_there_is_no_ratio_to_nothing() -> None:
    assert ratio(3, 2) == 1.5
    assert ratio(3, 0) is None


def results() -> dict[str, Any]:
    overhead = Stats.of([900, 1000, 1100], "µs").json()
    return {
        "quick": True,
        "minutes": 3,
        "machine": {"cores": "2"},
        "versions": {"mailboxd": "0.1.0"},
        "parts": {
            "fan": {
                "size": 250,
                "edges": 496,
                "at once": 8,
                "bare process": overhead,
                "contestants": {
                    "mailboxd": {"overhead": overhead, "over huey": 2.25, "wall s": 0.5},
                    "ninja": {"problem": "ninja: exit 1: a | b"},
                },
            },
            "messages": {"size": 2000, "per second": 1500.0, "missed": 0},
            "growth": {"size": 250, "completions": {"ratio": 1.1, "series": [{"at": 100, "CPU µs each": 800.0}]}},
        },
        "goals": [],
    }


def test_a_goal_is_judged_by_what_was_measured_and_left_out_when_nothing_was() -> None:
    judged = {row["what"]: (row["goal"], row["measured"], row["met"]) for row in goals.judge(results()["parts"])}
    assert judged == {
        "overhead per subtask, fan of 250, over huey's": ("<= 2 x", 2.25, False),
        "2,000 messages at once, per second": (">= 2000 /s", 1500.0, False),
        "2,000 messages at once, missed": ("<= 0", 0.0, True),
        "cost per completion, 250 over 100 nodes": ("<= 1.2 x", 1.1, True),
    }


def test_the_page_shows_the_goals_who_took_part_and_what_failed() -> None:
    found = results()
    page = report.tables({**found, "goals": goals.judge(found["parts"])})
    assert "| overhead per subtask, fan of 250, over huey's | <= 2 x | 2.25 | **no** |" in page
    assert "| mailboxd | 1,000 | 900–1,100 | 2.25 |" in page
    assert "| ninja | ninja: exit 1: a / b |" in page


def test_the_plots_are_well_formed_and_show_every_value() -> None:
    drawn = plots.draw(results()["parts"])
    assert set(drawn) == {"overhead", "growth"}
    for _title, svg in drawn.values():
        ElementTree.fromstring(svg)
    assert "1,000 µs" in drawn["overhead"][1]
    assert "at 100" in drawn["growth"][1]
