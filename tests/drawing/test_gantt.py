"""The drawing of time: each task a line, each attempt a bar in its place."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from mailboxd.core.times import to_epoch
from mailboxd.formats.drawing.gantt import Bar, Crowd, Window, duration, gantt_svg

NOW = to_epoch("2026-11-21T12:00:00.000Z")


def drawn(rows: Sequence[Bar | Crowd], now: float, window: Window | None = None) -> str:
    bars = [row for row in rows if isinstance(row, Bar)]
    ends = [now, *(max(bar.end or now, bar.start) for bar in bars)]
    shown = window or (min([now, *(bar.start for bar in bars)]), max(ends))
    return gantt_svg(rows, now, shown, lambda part: f"?{part[0]:.0f}-{part[1]:.0f}")


def _texts(svg: str, name: str = "text") -> list[str]:
    found = [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{name}")]
    return [text for text in found if not text.startswith("zoom to")]


def test_bars_of_one_task_share_a_line_and_say_how_long_they_took() -> None:
    bars = [
        Bar("extract", NOW - 100, NOW - 60, "failed", "timeout"),
        Bar("extract", NOW - 50, None, "running"),
        Bar("<report>", NOW - 10, NOW - 10, "succeeded"),
    ]
    svg = drawn(bars, NOW)
    assert _texts(svg).count("extract") == 1
    assert "<report>" in _texts(svg)
    assert _texts(svg, "title") == [
        "extract · failed · 40.0 s · timeout",
        "extract · running · 50.0 s so far",
        "<report> · succeeded · 0.0 s",
    ]


@pytest.mark.parametrize("span", [0.0, 0.4, 59, 3_599, 90_000, 86_400 * 400])
def test_any_span_has_a_few_ticks_and_all_bars_are_inside(span: float) -> None:
    svg = drawn([Bar("a", NOW - span, NOW, "succeeded"), Bar("b", NOW, None, "running")], NOW)
    root = ElementTree.fromstring(svg)
    ticks = [line for line in root.iter("{http://www.w3.org/2000/svg}line") if line.get("class") == "grid"]
    assert len(ticks) <= 8
    width = float(root.get("width", "0"))
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(bar.get("x", "0")) + float(bar.get("width", "0")) <= width


def test_a_window_shows_what_ran_in_it_and_its_axis_leads_further_in() -> None:
    bars = [Bar("before", NOW - 900, NOW - 700, "succeeded"), Bar("across", NOW - 400, NOW + 50, "failed")]
    svg = drawn(bars, NOW, (NOW - 300, NOW))
    assert "before" not in _texts(svg)
    assert "across · failed · 7 min 30 s" in _texts(svg, "title")
    parts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}a")
    assert f"?{NOW - 240:.0f}-{NOW - 180:.0f}" in [part.get("href") for part in parts]


def test_a_crowd_is_a_line_of_columns() -> None:
    svg = drawn([Crowd("70 attempts more", [40, 0, 30], [0, 0, 3], "/list")], NOW, (NOW - 300, NOW))
    assert _texts(svg, "title") == [
        "70 attempts more · 40 began at 11:55:00",
        "70 attempts more · 30 began at 11:58:20, 3 of them failed",
    ]
    assert svg.count('class="column good"') == 2
    assert svg.count('class="column bad"') == 1


def test_nothing_to_draw_is_drawn() -> None:
    assert drawn([], NOW).startswith("<svg")


def test_a_clock_that_was_set_back_draws_no_bar_backwards() -> None:
    svg = drawn([Bar("a", NOW + 60, None, "running")], NOW)
    drawings = [one for one in ElementTree.fromstring(svg).iter() if one.get("class") != "shape axis"]
    assert all(float(one.get("width", "1")) > 0 for one in drawings)


def test_durations() -> None:
    assert [duration(value) for value in (0.04, 59.9, 250, 12_000, 180_000)] == [
        "0.0 s", "59.9 s", "4 min 10 s", "3 h 20 min", "2 d 2 h",
    ]  # fmt: skip


def test_what_is_written_in_a_bar_fits_into_it_in_a_wide_font() -> None:
    for share in range(1, 60):
        svg = drawn([Bar("a", NOW - 600, NOW, "failed"), Bar("b", NOW - 10 * share, NOW, "succeeded")], NOW)
        group = next(
            one
            for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")
            if "good" in (one.get("class") or "")
        )
        said = [one.text or "" for one in group.iter("{http://www.w3.org/2000/svg}text")]
        width = 720 * share / 60
        assert all(9 + 6.4 * len(text) <= width for text in said if len(text) > 1)
