"""The drawing of time: each task a line, each attempt a bar in its place."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from mailboxd.core.times import to_epoch
from mailboxd.drawing.gantt import Bar, Crowd, duration, gantt_svg

NOW = to_epoch("2026-11-21T12:00:00.000Z")


def _texts(svg: str, name: str = "text") -> list[str]:
    return [found.text or "" for found in ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{name}")]


def test_bars_of_one_task_share_a_line_and_say_how_long_they_took() -> None:
    bars = [
        Bar("extract", NOW - 100, NOW - 60, "failed", "timeout"),
        Bar("extract", NOW - 50, None, "running"),
        Bar("<report>", NOW - 10, NOW - 10, "succeeded"),
    ]
    svg = gantt_svg(bars, NOW)
    assert _texts(svg).count("extract") == 1
    assert "<report>" in _texts(svg)
    assert _texts(svg, "title") == [
        "extract · failed · 40.0 s · timeout",
        "extract · running · 50.0 s so far",
        "<report> · succeeded · 0.0 s",
    ]


@pytest.mark.parametrize("span", [0.0, 0.4, 59, 3_599, 90_000, 86_400 * 400])
def test_any_span_has_a_few_ticks_and_all_bars_are_inside(span: float) -> None:
    svg = gantt_svg([Bar("a", NOW - span, NOW, "succeeded"), Bar("b", NOW, None, "running")], NOW)
    root = ElementTree.fromstring(svg)
    ticks = [line for line in root.iter("{http://www.w3.org/2000/svg}line") if line.get("class") == "grid"]
    assert len(ticks) <= 8
    width = float(root.get("width", "0"))
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(bar.get("x", "0")) + float(bar.get("width", "0")) <= width


def test_a_window_shows_what_ran_in_it_and_its_axis_leads_further_in() -> None:
    bars = [Bar("before", NOW - 900, NOW - 700, "succeeded"), Bar("across", NOW - 400, NOW + 50, "failed")]
    svg = gantt_svg(bars, NOW, window=(NOW - 300, NOW), zoom=lambda part: f"?{part[0]:.0f}-{part[1]:.0f}")
    assert "before" not in _texts(svg)
    assert "across · failed · 7 min 30 s" in _texts(svg, "title")
    parts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}a")
    assert f"?{NOW - 240:.0f}-{NOW - 180:.0f}" in [part.get("href") for part in parts]


def test_a_crowd_is_a_line_of_columns() -> None:
    svg = gantt_svg([Crowd("70 attempts more", [40, 0, 30], [0, 0, 3], "/list")], NOW, window=(NOW - 300, NOW))
    assert _texts(svg, "title") == [
        "70 attempts more · 40 began at 11:55:00",
        "70 attempts more · 30 began at 11:58:20, 3 of them failed",
    ]
    assert svg.count('class="column good"') == 2
    assert svg.count('class="column bad"') == 1


def test_nothing_to_draw_is_drawn() -> None:
    assert gantt_svg([], NOW).startswith("<svg")


def test_a_clock_that_was_set_back_draws_no_bar_backwards() -> None:
    svg = gantt_svg([Bar("a", NOW + 60, None, "running")], NOW)
    assert all(float(rect.get("width", "0")) > 0 for rect in ElementTree.fromstring(svg).iter() if rect.get("width"))


def test_durations() -> None:
    assert [duration(value) for value in (0.04, 59.9, 250, 12_000, 180_000)] == [
        "0.0 s", "59.9 s", "4 min 10 s", "3 h 20 min", "2 d 2 h",
    ]  # fmt: skip
