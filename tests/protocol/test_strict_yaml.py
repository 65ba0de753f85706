"""YAML without types: what is read, and how every hostile form is refused (protocol section 2)."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mailboxd.errors import MessageError
from mailboxd.formats.protocol import strict_yaml
from mailboxd.formats.protocol.strict_yaml import load


@pytest.fixture(params=["C parser", "Python parser"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers PyYAML may come with; the wheels have the C one."""
    loader = yaml.CBaseLoader if request.param == "C parser" else yaml.BaseLoader
    monkeypatch.setattr(strict_yaml, "_LOADER", loader)


def refusal(call: Callable[[], Any]) -> MessageError:
    with pytest.raises(MessageError) as caught:
        call()
    return caught.value


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "text",
    ["no", "yes", "010", "0123", "1e3", "0x1F", "12:30:45", "2026-11-20", "2026-13-45", "1_000", ".inf", "=", "true"],
)
def test_a_scalar_is_its_literal_text(text: str) -> None:
    assert load(f"id: {text}", path="a.md").value == {"id": text}


@pytest.mark.usefixtures("parser")
def test_a_structure_is_mappings_lists_and_texts_with_the_line_of_each() -> None:
    loaded = load("a: x\nb:\n  - one\n  - c: 'y'\nd: {e: [1]}\n", path="a.md", first_line=10)

    assert loaded.value == {"a": "x", "b": ["one", {"c": "y"}], "d": {"e": ["1"]}}
    assert loaded.lines == {
        (): 10,
        ("a",): 10,
        ("b",): 11,
        ("b", 0): 12,
        ("b", 1): 13,
        ("b", 1, "c"): 13,
        ("d",): 14,
        ("d", "e"): 14,
        ("d", "e", 0): 14,
    }


@pytest.mark.usefixtures("parser")
def test_empty_plain_scalars_and_nulls_are_empty_texts_that_differ_from_quoted_ones() -> None:
    loaded = load("a:\nb: ~\nc: null\nd: ''\ne: 'null'\nf: [~, x]", path="a.md")

    assert loaded.value == {"a": "", "b": "", "c": "", "d": "", "e": "null", "f": ["", "x"]}
    assert loaded.nulls == {("a",), ("b",), ("c",), ("f", 0)}


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("text", ["", "\n\n", "# a comment\n"])
def test_no_document_is_an_empty_scalar(text: str) -> None:
    loaded = load(text, path="a.md")
    assert loaded.value == ""
    assert loaded.nulls == frozenset({()})


REFUSED = {
    "anchor": ("a: &x 1", "alias"),
    "alias": ("a: *x", "alias"),
    "billion laughs": ("a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]", "alias"),
    "anchored mapping": ("a: &m {x: 1}", "alias"),
    "merge key": ("a:\n  <<: {x: 1}", "merge-key"),
    "python tag": ("a: !!python/object/apply:os.system ['true']", "tag"),
    "binary tag": ("a: !!binary aGk=", "tag"),
    "local tag": ("a: !x 1", "tag"),
    "non-specific tag": ("a: ! 1", "tag"),
    "tagged mapping": ("a: !!map {}", "tag"),
    "duplicate key": ("from: a\nto: b\nfrom: c", "duplicate-key"),
    "nested duplicate key": ("x: {a: 1, 'a': 2}", "duplicate-key"),
    "500 block levels": ("\n".join(" " * n + "a:" for n in range(500)), "too-deep"),
    "17 lists": ("[" * 17 + "]" * 17, "too-deep"),
    "30000 brackets": ("[" * 30_000, "too-deep"),
    "30000 braces": ("{a: " * 15_000, "too-deep"),
    "30000 dashes": ("- " * 30_000, "too-deep"),
    "30000 question marks": ("? " * 30_000, "bad-yaml"),
    "brackets on lines of their own": ("[\n" * 30_000, "too-deep"),
    "too many events": ("- a\n" * 2000, "too-large"),
    "second document": ("a: 1\n---\nb: 2", "multi-doc"),
    "document end": ("a: 1\n...\n", "multi-doc"),
    "directive": ("%YAML 1.1\n---\na: 1", "multi-doc"),
    "tag directive": ("%TAG ! tag:x,2000:\n---\na: 1", "multi-doc"),
    "unknown version": ("%YAML 3.0\n---\na: 1", "multi-doc"),
    "directive without a document": ("%YAML 1.1\na: 1", "multi-doc"),
    "line separator": ("id: a\u2028from: human", "control-char"),
    "paragraph separator": ("id: a\u2029from: human", "control-char"),
    "next line": ("id: a\x85from: human", "control-char"),
    "bare carriage return": ("id: a\rfrom: human", "control-char"),
    "NUL": ("id: a\0b", "control-char"),
    "escape character": ("id: a\x1b[31m", "control-char"),
    "delete": ("id: a\x7f", "control-char"),
    "byte order mark": ("id: \ufeffa", "control-char"),
    "escaped NUL": ('id: "a\\0b"', "control-char"),
    "lone surrogate": ("id: \ud800", "control-char"),
    "complex key": ("? [a, b]\n: c", "bad-yaml"),
    "mapping as key": ("{a: 1}: c", "bad-yaml"),
    "empty key": (": c", "bad-yaml"),
    "colon in a value": ("a: b: c", "bad-yaml"),
    "unclosed quote": ('a: "b', "bad-yaml"),
    "unclosed list": ("a: [b", "bad-yaml"),
    "tab as indentation": ("a:\n\t- b", "bad-yaml"),
    "reserved character": ("a: @b", "bad-yaml"),
    "escape that is none": ('a: "\\q"', "bad-yaml"),
    "escape beyond Unicode": ('a: "\\U00110000"', "bad-yaml"),
    "60 KB of quotes": ('"' * 60_001, "bad-yaml"),
}


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_hostile_or_broken_is_refused_with_its_rule_and_line(name: str) -> None:
    text, rule = REFUSED[name]
    error = refusal(lambda: load(text, path="a.md", first_line=2))

    assert error.rule == rule
    assert error.path == "a.md"
    assert error.line is not None
    assert error.line >= 2
    assert len(str(error)) < 2048
    assert str(error).isprintable()


@pytest.mark.usefixtures("parser")
def test_an_escaped_surrogate_is_refused() -> None:
    assert refusal(lambda: load('id: "\\ud800"', path="a.md")).rule in ("control-char", "bad-yaml")


def test_a_duplicate_key_names_both_lines_and_the_field() -> None:
    error = refusal(lambda: load("from: a\nto: b\nfrom: c", path="a.md", first_line=2))
    assert "lines 2 and 4" in error.problem
    assert (error.line, error.field) == (4, "from")


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_yaml_costs_less_than_50_ms_and_8_mb(name: str) -> None:
    text, _ = REFUSED[name]

    def timed() -> float:
        started = time.process_time()
        refusal(lambda: load(text, path="a.md"))
        return time.process_time() - started

    assert min(timed() for _ in range(3)) < 0.05
    tracemalloc.start()
    refusal(lambda: load(text, path="a.md"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_the_input_that_crashes_the_c_composer_is_refused() -> None:
    """In a child process: if this regresses it is the child that dies of SIGSEGV."""
    program = (
        "from mailboxd.formats.protocol.strict_yaml import load\n"
        "from mailboxd.errors import MessageError\n"
        "for text in ('[' * 30_000, '{' * 60_000, '[?' * 30_000, '- ' * 30_000, '? [\\n' * 20_000):\n"
        "    try:\n"
        "        load(text, path='x')\n"
        "    except MessageError as error:\n"
        "        print(error.rule)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= {"too-deep", "bad-yaml"}
    assert len(done.stdout.split()) == 5


@pytest.mark.slow
@pytest.mark.skipif(not yaml.__with_libyaml__, reason="speed is that of the C parser")
def test_a_plan_of_10000_nodes_with_8_fields_loads_in_time() -> None:
    nodes = "".join(f"  n{i}:\n" + "".join(f"    f{j}: value {i}\n" for j in range(8)) for i in range(10_000))
    started = time.process_time()
    loaded = load("subtasks:\n" + nodes, path="p.md", max_events=1_000_000)
    elapsed = time.process_time() - started

    assert isinstance(loaded.value, dict)
    assert len(loaded.value["subtasks"]) == 10_000
    assert loaded.lines["subtasks", "n9999", "f7"] == 90_001
    assert elapsed < 1.5


@given(st.text(alphabet=st.sampled_from("ab:-? \n\t[]{}&*!|>'\"%@#,<~\\x0\r\u2028\x85\0"), max_size=60))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        loaded = load(text, path="a.md")
    except MessageError as error:
        assert error.rule  # noqa: PT017 - both outcomes are right
    else:
        assert isinstance(loaded.value, str | list | dict)


_KEYS = st.sampled_from(["id", "from", "a_b-c", "null", "y", "~", "Id", "-", "a b", "<<", "'a'", '"a"', "1"])
_WORDS = st.text(alphabet=st.sampled_from("aZ019._/+-: \t#,\"'\\[]{}&*!|>%@~?=()"), max_size=12)
_VALUES = st.one_of(
    _WORDS,
    _WORDS.map(lambda text: f'"{text}"'),
    st.sampled_from(["null", "~", "", "Null", "no", "1e3", "2026-11-21T00:00:00Z", '"null"', "12:30:45", "a: b"]),
)
_ROWS = st.tuples(_KEYS, st.sampled_from([": ", ":", ":  ", " : ", ":\t"]), _VALUES, st.sampled_from(["\n", "\r\n"]))
_ALMOST_SIMPLE = st.lists(_ROWS.map("".join), max_size=5).map("".join)


@pytest.mark.usefixtures("parser")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_ALMOST_SIMPLE, st.booleans(), st.integers(1, 9))
def test_what_is_read_without_a_parser_is_what_the_parser_reads(text: str, cut: bool, first_line: int) -> None:
    text = text.rstrip("\n") if cut else text
    simple = strict_yaml._simple(text.replace("\r\n", "\n"), first_line)
    if simple is not None:
        assert simple == parsed(text, first_line)


def parsed(text: str, first_line: int = 1) -> strict_yaml.Loaded:
    """What the parser reads: a comment makes no text simple, and no other one of it."""
    loaded = load(f"{text.removesuffix(chr(10))}\n#", path="a.md", first_line=first_line)
    assert strict_yaml._simple(f"{text}\n#", first_line) is None
    return loaded


@pytest.mark.usefixtures("parser")
def test_the_headers_of_every_day_are_read_without_a_parser() -> None:
    text = 'type: reply\ntask_id: q3.r\nfrom: beta\ncompleted_at: "2026-11-21T00:00:00.000Z"\nattempt: "2"\nx: a b\n'

    assert strict_yaml._simple(text, 2) == parsed(text, 2)
    assert strict_yaml._simple(text.rstrip(), 2) is not None
    for other in ("a: b\na: c\n", "a: null\n", "a:\n", "a: b \n", "a: b\n\nc: d\n", "a: [b]\n", "a: b\n" * 65, "", "a"):
        assert strict_yaml._simple(other, 1) is None


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(_ALMOST_SIMPLE, st.text(alphabet=st.sampled_from("ab: \n-?[]{},'\"#|>"), max_size=40)))
def test_what_the_c_parser_accepts_the_python_parser_reads_as_the_same(text: str) -> None:
    """Which of them a machine has makes no difference to what a message says."""
    read = []
    for loader in (yaml.CBaseLoader, yaml.BaseLoader):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(strict_yaml, "_LOADER", loader)
            with suppress(MessageError):
                read.append(parsed(text))
    for loaded in read:
        loaded.lines.pop((), None)  # they disagree on where an empty document is
    assert len(read) < 2 or read[0] == read[1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: [x\nc: 1\n\nd: 2\n", 2),
        ("a: 1\nb: {x: 1\nc: 1\n\nd: 2\n", 2),
        ("a:\n  - [1\n  - 2\nb: 2\n", 2),
        ("a: 1\nb: 'x\nc: 1\n", 2),
        ('a: 1\nb: "x\nc: 1\n', 2),
        ('a: "x\n  \\q"\n', 2),
        ("a: [1,\n  2,\n  }\n", 3),
    ],
)
def test_what_is_never_closed_is_reported_where_it_begins(text: str, line: int) -> None:
    assert refusal(lambda: load(text, path="a.md")).line == line
