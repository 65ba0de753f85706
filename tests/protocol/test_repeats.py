"""A rule that lacks something is refused with one that can be used as it is printed."""

from __future__ import annotations

import re

import pytest

from mailboxd.errors import MessageError
from mailboxd.formats.protocol.repeats import read_repeat


@pytest.mark.parametrize(
    ("text", "missing", "example"),
    [
        ("every week at 8:00", "on which day", "every week on monday at 8:00"),
        ("every week 8:00", "on which day", "every week on monday at 8:00"),
        ("8:00 every week", "on which day", "every week on monday at 8:00"),
        ("every 2 weeks at noon", "on which day", "every 2 weeks on monday at noon"),
        ("weekly at 8am", "on which day", "weekly on monday at 8am"),
        ("monthly at 9:00", "on which day", "monthly on the 1st at 9:00"),
        ("every month at 9:00 Asia/Tokyo", "on which day", "every month on the 1st at 9:00 Asia/Tokyo"),
        ("weekly", "at what time of the day", "weekly on monday at 07:00"),
        ("monthly", "at what time of the day", "monthly on the 1st at 07:00"),
        ("every 2 weeks", "at what time of the day", "every 2 weeks on monday at 07:00"),
        ("every other monday", "at what time of the day", "every other monday at 07:00"),
        ("daily Etc/GMT+5", "at what time of the day", "daily at 07:00 Etc/GMT+5"),
    ],
)
def test_what_a_rule_lacks_is_named_with_a_rule_that_has_it(text: str, missing: str, example: str) -> None:
    with pytest.raises(MessageError, match=f"does not say {missing}") as refused:
        read_repeat(text)
    assert refused.value.rule == "bad-repeat"
    said = re.findall("`(.*?)`", refused.value.hint)
    assert said == [example]
    assert str(read_repeat(example))


def test_five_words_are_no_cron_line() -> None:
    assert str(read_repeat("monday to friday at 9am")) == "0 9 * * 1,2,3,4,5"
    assert str(read_repeat("*/5 9-17 * jan mon-fri")) == "*/5 9-17 * jan mon-fri"
