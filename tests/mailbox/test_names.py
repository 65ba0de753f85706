"""File names of the world outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.sanitize import for_file_name
from mailboxd.formats.mailbox.layout import LONGEST, clash_name, first_free, is_file_name, is_temporary, numbers_in_use

DIGEST = "0123456789abcdef" * 4
file_names = st.binary(min_size=1, max_size=LONGEST).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
file_names = file_names.filter(is_file_name)


TEMPORARY = [
    *(".x.md.swp", ".#x.md", ".x.md.Ab12Cd", ".goutputstream-AB12", ".DS_Store", ".syncthing.x.md.tmp", ".~tmp~"),
    *("x.md~", "#x.md#", "4913", "x.md.tmp", "X.TMP", "x.md.crdownload", "x.part", "x.filepart"),
    *("~$x.md", "~syncthing~x.tmp"),
]


@pytest.mark.parametrize("name", TEMPORARY)
def test_temporary_names_of_writers_and_editors_are_known(name: str) -> None:
    assert is_temporary(name)


@pytest.mark.parametrize(
    "name", ["x.md", "task", "4914", "49130", "x~2.md", "#1.md", "x (conflicted copy).md", "tmp", "ä.md"]
)
def test_names_of_messages_are_not_temporary(name: str) -> None:
    assert not is_temporary(name)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "\x7f", "\x85", "\udcff", "a\u202eb", "\u2028"])
def test_names_that_could_disturb_a_terminal_or_a_database_are_shown_escaped(name: str) -> None:
    assert for_file_name(name) != name
    assert for_file_name(name).isprintable()


def test_a_byte_that_is_not_utf8_is_shown_as_itself() -> None:
    assert for_file_name(b"caf\xe9.md".decode("utf-8", "surrogateescape")) == "caf%E9.md"
    assert for_file_name("\ud800") == "%ED%A0%80"


@given(file_names, st.integers(0, 100_000), st.sampled_from([0, 12]))
def test_every_clash_name_is_a_showable_file_name_with_room_left(name: str, number: int, room: int) -> None:
    made = clash_name(name, DIGEST, number, room)

    assert is_file_name(made)
    assert for_file_name(made) == made
    assert len(made.encode()) <= LONGEST - room
    assert made == clash_name(name, DIGEST, number, room)


@given(file_names, st.sets(st.integers(0, 30), min_size=2))
def test_clash_names_of_one_name_differ(name: str, numbers: set[int]) -> None:
    assert len({clash_name(name, DIGEST, number) for number in numbers}) == len(numbers)


def test_clash_names_keep_the_extension() -> None:
    assert [clash_name("x.md", DIGEST, number) for number in (0, 1, 8, 9)] == [
        "x.md",
        "x~2.md",
        "x~9.md",
        "x~0123456789ab-10.md",
    ]
    assert clash_name("x" * 252 + ".md", DIGEST, 1) == "x" * 250 + "~2.md"


@given(st.sets(st.integers(0, 40)))
def test_the_first_free_number_is_free_and_near_what_is_used(used: set[int]) -> None:
    number = first_free(lambda number: number in used)

    assert number not in used
    assert number < 9 or number - 1 in used


@given(st.integers(0, 100_000))
def test_without_gaps_the_number_after_the_last_is_found_in_few_questions(count: int) -> None:
    asked = []

    def is_used(number: int) -> bool:
        asked.append(number)
        return number < count

    assert first_free(is_used) == count
    assert len(asked) < 50
    if count:
        assert count - 1 in numbers_in_use(count)
