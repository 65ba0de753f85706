"""The summary line of a result, over the texts that agents send."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.summary import LONGEST, summary_line

_LONG = "Revenue rose by three per cent in the third quarter. " * 20


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("  \n\t\n", ""),
        ("---\n***\n", ""),
        ("42", "42"),
        ("Done.", "Done."),
        ("Revenue rose by 3 %.", "Revenue rose by 3 %."),
        # headings
        ("# Report\n\nRevenue rose by 3 %.\nCosts fell.", "Revenue rose by 3 %."),
        ("Report\n======\n\nRevenue rose.", "Revenue rose."),
        ("# Report\n\n## Details", "Report"),
        ("# Report\n\n## Numbers\n\n1. Revenue\n\n## Summary\n\nRevenue rose by **3 %**.", "Revenue rose by 3 %."),
        ("All numbers are in the table.\n\n## TL;DR\n- It pays.\n", "It pays."),
        ("# Bericht\n\nErst Zahlen.\n\n## Zusammenfassung\n\nEs lohnt sich.", "Es lohnt sich."),
        ("## Summary\n\n## Results\n\nIt works.", "It works."),
        # labels
        ("First words.\n\n**Summary:** it pays.", "it pays."),
        ("TL;DR: it pays.\n\nMore.", "it pays."),
        ('{\n  "summary": "it pays",\n  "rows": 3\n}', "it pays"),
        ("---\nsummary: it pays\nrows: 3\n---\nThe rows follow.", "it pays"),
        # lists
        ("- Revenue rose\n- Costs fell", "Revenue rose"),
        ("1. [x] Wrote the parser\n2. [ ] Tests", "Wrote the parser"),
        # code
        ("```python\nprint(1)\n```\n\nThe script prints one.", "The script prints one."),
        ("```\nprint(1)\n```", "print(1)"),
        ("~~~\n# not a heading\n~~~\nAfter it.", "After it."),
        ("```\nnever closed\nThe end.", "never closed"),
        # tables
        ("| a | b |\n|---|---|\n| 1 | 2 |\n\nTwo columns.", "Two columns."),
        ("| Region | Revenue |\n|---|---|\n| North | 2 |", "Region, Revenue"),
        # YAML
        ("---\nstatus: done\n---\n# Title\n\nIt is done.", "It is done."),
        ("status: done\nrows: 3", "status: done"),
        # greetings and what only introduces
        ("Sure! Here is the report:\n\n# Q3\n\nRevenue rose.", "Revenue rose."),
        ("Hi Alpha,\n\nRevenue rose.", "Revenue rose."),
        ("Certainly! Revenue rose by 3 %.", "Revenue rose by 3 %."),
        ("I have completed the task.\n\nRevenue rose.", "Revenue rose."),
        ("I have completed the task.", "I have completed the task."),
        ("Here are the files you asked for.\n\n- a.txt holds the sums", "a.txt holds the sums"),
        ("Here is the report:", "Here is the report:"),
        ("Great progress was made on all of them.", "Great progress was made on all of them."),
        ("Done: 17 files were changed.", "17 files were changed."),
        # Markdown in a line
        ("See [the report](https://example.org/a_b) in `out/q3.md`, __now__.", "See the report in out/q3.md, now."),
        ("> Quoted, but all there is.", "Quoted, but all there is."),
        ("<!-- draft -->\nIt is ready.", "It is ready."),
        ("It <b>is</b> > ready.", "It <b>is</b> > ready."),
        ("# Tests\n\n\x1b[32mAll passed\x1b[0m.", "All passed."),
        ("snake_case_name is 2*3*4 wide.", "snake_case_name is 2*3*4 wide."),
        # a sentence over several lines
        ("Revenue rose by three\nper cent.\nCosts fell.", "Revenue rose by three per cent."),
        ("Line one\nLine two", "Line one"),
        # other scripts
        ("# 報告\n\n売上は3%増えました。費用は減りました。", "売上は3%増えました。費用は減りました。"),
        ("细节在后。\n\n## 摘要\n\n收入增长了。", "收入增长了。"),
        ("# تقرير\n\nارتفعت الإيرادات.", "ارتفعت الإيرادات."),
        ("\u202eevil\u202c line", "evil line"),
        # mailboxd's own words
        ("[mailboxd] 2 of 3 said yes.\n\nIt holds.", "It holds."),
        # very long
        (_LONG, ("Revenue rose by three per cent in the third quarter. " * 3).strip()),
        ("x" * 100_000, "x" * (LONGEST - 1) + "…"),
        ("売上" * 500, ("売上" * 500)[: LONGEST - 1] + "…"),
    ],
)  # fmt: skip
def test_the_line_that_says_what_a_text_says(text: str, line: str) -> None:
    assert summary_line(text) == line


@given(st.text(max_size=2_000))
def test_it_is_one_printable_line_within_its_limit(text: str) -> None:
    line = summary_line(text)
    assert len(line) <= LONGEST
    assert line == line.strip()
    assert line.isprintable()


@given(st.text(alphabet="#`~|-*_[]()!>: .\nab1", max_size=400))
def test_whoever_has_words_has_a_line(text: str) -> None:
    assert bool(summary_line(text)) >= any(char.isalnum() for char in text)


@pytest.mark.parametrize("piece", ["[" * 40, "*_`" * 20, "<!--", "| a " * 10, "a:", "> ", "- ", "Sure! ", "`" * 9])
def test_no_text_takes_long(piece: str) -> None:
    started = time.process_time()
    summary_line(piece * 50_000)
    summary_line(f"{piece}\n" * 50_000)
    assert time.process_time() - started < 1.0


@given(st.from_regex(r"(ok|sure|Hi|summary|done|at 5)?[, ]?[A-Za-z0-9é字 ,'’-]{0,40}[.!?]?", fullmatch=True))
def test_one_sentence_is_read_as_any_text_is(text: str) -> None:
    assert summary_line(text) == summary_line(f"{text}\n") == summary_line(f"\n{text}")
