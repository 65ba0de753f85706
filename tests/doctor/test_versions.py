"""Ranges of Node versions as package.json states them."""

from __future__ import annotations

import pytest

from mailboxd.doctor.machine import newest_major, satisfies, version_in

OPENCLAW = ">=24.16.0 <25 || >=26.1.0"


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ((24, 19, 0), OPENCLAW, True),
        ((24, 16, 0), OPENCLAW, True),
        ((24, 15, 9), OPENCLAW, False),
        ((25, 0, 0), OPENCLAW, False),
        ((26, 0, 9), OPENCLAW, False),
        ((26, 1, 0), OPENCLAW, True),
        ((30, 0, 0), OPENCLAW, True),
        ((22, 12, 1), ">= 22.12", True),
        ((22, 11, 1), ">=22.12", False),
        ((22, 11, 1), "22", True),
        ((22, 11, 1), "22.x", True),
        ((23, 0, 0), "22.x", False),
        ((22, 11, 1), "^22.3.1", True),
        ((23, 0, 0), "^22.3.1", False),
        ((22, 4, 0), "~22.3.1", False),
        ((22, 3, 9), "~22.3.1", True),
        ((22, 3, 9), "<=22.3", True),
        ((22, 4, 0), "<=22.3", False),
        ((22, 4, 0), ">22.3", True),
        ((22, 3, 9), ">22.3", False),
        ((22, 3, 9), "=22.3.9", True),
        ((1, 2, 3), "*", True),
        ((1, 2, 3), "", True),
        ((1, 2, 3), "lts/iron", None),
        ((1, 2, 3), ">=0.9 || what", True),
        ((1, 2, 3), ">=2 || what", None),
    ],
)
def test_a_range_is_read_as_npm_reads_it(version: tuple[int, int, int], wanted: str, fits: bool | None) -> None:
    assert satisfies(version, wanted) is fits


@pytest.mark.parametrize(
    ("text", "version"),
    [("v24.19.0\n", (24, 19, 0)), ("26.10.0", (26, 10, 0)), ("v24.19", None), ("1.2.3.4", None), ("node", None)],
)
def test_a_version_is_three_numbers(text: str, version: tuple[int, int, int] | None) -> None:
    assert version_in(text) == version


def test_the_newest_alternative_of_a_range_is_recommended() -> None:
    assert (newest_major(OPENCLAW), newest_major("22"), newest_major("lts")) == ("26", "22", "")
