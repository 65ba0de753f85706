"""The session key belongs to the piece of work (protocol section 2, "Sessions")."""

from __future__ import annotations

import hashlib
import json
import re

from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.session_keys import session_key

ids = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,20}", fullmatch=True)


def test_a_session_key_reads_like_its_work() -> None:
    key = session_key("Beta", "report.a1", "alpha", 2)
    assert re.fullmatch(r"agent:beta:mailboxd:report\.a1-2-[0-9a-f]{12}", key)


@given(ids, ids, ids, ids, ids, ids, st.integers(1, 9), st.integers(1, 9))
def test_different_work_has_a_different_session_although_keys_are_lower_case(
    agent: str, other_agent: str, local: str, other: str, by: str, other_by: str, n: int, m: int
) -> None:
    one, two = session_key(agent, local, by, n), session_key(other_agent, other, other_by, m)
    same_work = (agent.lower(), local, by.lower(), n) == (other_agent.lower(), other, other_by.lower(), m)
    assert (one == two) == same_work
    assert one == one.lower()
    assert one.count(":") == 3


@given(ids, st.text(max_size=40), ids, st.integers(1, 99))
def test_the_key_of_an_attempt_of_an_earlier_version_stays_what_it_is(agent: str, local: str, by: str, n: int) -> None:
    exact = json.dumps([agent.lower(), local, by.lower(), n])
    assert session_key(agent, local, by, n).endswith(f"-{n}-{hashlib.sha256(exact.encode()).hexdigest()[:12]}")


def test_ids_that_differ_in_case_only_do_not_share_a_session() -> None:
    assert session_key("a", "Task", "a", 1) != session_key("a", "task", "a", 1)


def test_a_session_key_has_a_sane_length() -> None:
    assert len(session_key("a" * 128, "b" * 300, "c" * 128, 10_000)) <= 240
