"""config.yaml: every key is documented, and every error says where it is and what to write instead."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from mailboxd.core.model import Policy
from mailboxd.core.task_view import Limits
from mailboxd.core.vocabulary import Gate, Synthesis, WeakSpec, is_id
from mailboxd.errors import EXIT_CONFIG, ConfigError
from mailboxd.formats import config
from mailboxd.formats.config.file import keys
from mailboxd.formats.config.model import Config, LimitsSection
from mailboxd.formats.config.settings import limits, policy, settings

ROOT = Path(__file__).resolve().parents[1]


def write(directory: Path, text: str | bytes) -> Path:
    path = directory / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problem(directory: Path, text: str | bytes) -> str:
    """What is said of a configuration that is refused."""
    with pytest.raises(ConfigError) as refused:
        config.load(write(directory, text))
    assert refused.value.exit_code == EXIT_CONFIG
    said = str(refused.value)
    assert all(line.isprintable() for line in said.splitlines())
    assert len(said) < 2_048
    return said


# The default file and the reference.


def test_the_default_text_parses_to_the_defaults(tmp_path: Path) -> None:
    assert config.load(write(tmp_path, config.default_text("main"))) == Config(agent="main")


def test_given_keys_are_set_in_the_default_and_nothing_else(tmp_path: Path) -> None:
    given = {"mcp.port": 8770, "profile": "strict", "gates.reviewers": ["no", "007"]}
    text = config.default_text("main", given)
    assert config.by_key(config.load(write(tmp_path, text))).items() >= given.items()
    assert [line for line in text.splitlines() if line[:1] not in ("", "#") and not line.startswith("  #")] == [
        'agent: "main"', 'profile: "strict"', "gates:", '  reviewers: ["no", "007"]', "mcp:", "  port: 8770",
    ]  # fmt: skip


def test_the_default_text_with_every_key_uncommented_parses_to_the_defaults(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^#(?=( {2})?[a-z_]+:)", "", config.default_text("main"))
    assert config.load(write(tmp_path, text)) == Config(agent="main")
    assert sum(re.match(r" *[a-z_]+: \S", line) is not None for line in text.splitlines()) == sum(
        ".NAME." not in key for key, _ in keys()
    )


def test_one_agent_may_have_as_many_turns_at_once_as_there_may_be_in_all_unless_told_otherwise() -> None:
    def slots(**said: int) -> int:
        return settings(Config(agent="alpha", limits=LimitsSection(**said))).slots_per_agent

    assert (slots(), slots(turns=9), slots(turns=9, turns_per_agent=2)) == (4, 9, 2)


def test_every_key_stands_in_the_default_text_with_a_comment() -> None:
    lines = config.default_text("main").splitlines()
    for key, field in keys():
        if ".NAME." in key:
            continue  # of an entry: the default is that there are none
        name = key.rpartition(".")[2]
        at = next(number for number, line in enumerate(lines) if re.match(rf"#? *{name}:", line))
        assert lines[at - 1].lstrip().startswith("# "), key
        assert field.description


def test_every_key_is_in_the_reference() -> None:
    rows = config.reference().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [key for key, _ in keys()]


def test_every_number_has_a_unit_and_both_ends_of_a_range() -> None:
    for key, field in keys():
        if field.annotation in (int, float):
            row = next(row for row in config.reference().splitlines() if f"`{key}`" in row)
            assert re.search(r"\| [a-z]+, [0-9.]+ to [0-9.]+ \|", row), key


@pytest.mark.parametrize("agent", ["007", "no", "1e3", "~1", "a b", "", "..", 'x"\nlimits: {turns: 9}'])
def test_an_agent_is_the_text_that_stands_there_or_refused(agent: str, tmp_path: Path) -> None:
    if not is_id(agent):
        with pytest.raises(ConfigError, match="agent"):
            config.default_text(agent)
        return
    assert config.load(write(tmp_path, config.default_text(agent))) == Config(agent=agent)
    assert config.load(write(tmp_path, f"agent: {agent}")) == Config(agent=agent)


# Derived settings.


def test_the_defaults_are_the_defaults_of_the_protocol() -> None:
    bounded = Policy(max_turns=50, max_tree_turns=1000, max_tree_tasks=200, named=frozenset())
    assert policy(Config(agent="main")) == bounded
    assert limits(Config(agent="main")) == Limits(turns=50, tree_turns=1000, planned=200, planned_hour=1000)


def test_what_is_set_reaches_the_tasks_and_is_shown_as_a_difference(tmp_path: Path) -> None:
    text = """\
agent: main
synthesis: concat
reply_within_seconds: 3600
openclaw: {turn_timeout_seconds: 60, command: [mailboxd-scripted-openclaw, --script, story.yaml]}
limits:
  depth: 2
retry: {max_attempts: 1, backoff_seconds: 0.5, backoff_max_seconds: 10}
gates:
  quality_gate: true
  reviewers: [critic, "007"]
  max_rework: 0
circuit: {hold_seconds: 60}
"""
    loaded = config.load(write(tmp_path, text))
    assert policy(loaded) == Policy(
        max_attempts=1,
        timeout=60,
        reply_within=3600,
        backoff_base=0.5,
        backoff_max=10.0,
        circuit_hold=60,
        max_rework=0,
        gates=frozenset({Gate.QUALITY_GATE}),
        reviewers=("critic", "007"),
        synthesis=Synthesis.CONCAT,
        max_turns=50,
        max_tree_turns=1000,
        max_tree_tasks=200,
        named=frozenset(),
    )
    assert limits(loaded).depth == 2
    assert config.by_key(loaded) == {
        "synthesis": "concat",
        "reply_within_seconds": 3600,
        "openclaw.turn_timeout_seconds": 60,
        "openclaw.command": ["mailboxd-scripted-openclaw", "--script", "story.yaml"],
        "limits.depth": 2,
        "retry.max_attempts": 1,
        "retry.backoff_seconds": 0.5,
        "retry.backoff_max_seconds": 10.0,
        "gates.quality_gate": True,
        "gates.reviewers": ["critic", "007"],
        "gates.max_rework": 0,
        "circuit.hold_seconds": 60,
    }


def test_one_reviewer_for_specification_and_quality_has_to_be_allowed(tmp_path: Path) -> None:
    text = "agent: main\ngates:\n  spec_gate: true\n  quality_gate: true\n  reviewers: [rex, REX]\n"
    with pytest.raises(ConfigError, match=r"rex.*name a second one in `reviewers`, or write `same_reviewer: true`"):
        config.load(write(tmp_path, text.replace("rex, REX", "rex")))
    assert config.load(write(tmp_path, text.replace("REX", "uma"))).gates.reviewers == ("rex", "uma")
    allowed = config.load(write(tmp_path, text + "  same_reviewer: true\n"))
    assert policy(allowed).same_reviewer


STRICT = "agent: a\nprofile: strict\n"


def test_one_line_switches_on_every_review_questions_about_weak_specs_and_budgets(tmp_path: Path) -> None:
    found = config.load(write(tmp_path, STRICT))
    rules = policy(found)
    assert rules.gates == frozenset(Gate)
    assert (rules.weak, rules.budget_usd, rules.budget_tokens) == (WeakSpec.ASK, 10.0, 2_000_000)
    assert "gates.quality_gate" in config.by_key(found)


def test_a_key_that_is_set_counts_before_the_profile(tmp_path: Path) -> None:
    own = "gates:\n  spec_gate: false\n  reviewers: [b, c]\nspec: {weak: draft}\nlimits: {usd_per_task: 0}\n"
    rules = policy(config.load(write(tmp_path, STRICT + own)))
    assert rules.gates == {Gate.SPEC_REVIEW, Gate.QUALITY_GATE}
    assert (rules.reviewers, rules.weak, rules.budget_usd, rules.budget_tokens) == (
        ("b", "c"), WeakSpec.DRAFT, None, 2_000_000
    )  # fmt: skip
    assert "gates: is a group" in problem(tmp_path, STRICT + "gates: [x]\n")
    assert "write one of" in problem(tmp_path, "agent: a\nprofile: stern\n")
    assert "same_reviewer: true" in problem(tmp_path, STRICT + "gates: {reviewers: [b]}\n")


def test_the_defaults_differ_in_nothing() -> None:
    assert config.by_key(Config(agent="main")) == {}


def test_a_key_or_group_with_nothing_after_it_says_nothing(tmp_path: Path) -> None:
    assert config.load(write(tmp_path, "agent: main\nlimits:\nretry:\n  max_attempts:\n")) == Config(agent="main")


def test_a_configuration_does_not_change() -> None:
    loaded: Any = Config(agent="main")
    with pytest.raises(ValidationError):
        loaded.limits.turns = 9


@pytest.mark.parametrize("turns", [True, "4.0", 4.0, 0, 257])
def test_values_are_taken_strictly(turns: object) -> None:
    with pytest.raises(ValidationError):
        LimitsSection.model_validate({"turns": turns})


# Errors.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limits:\n  turns: 2\n", ":1: agent: is missing; add it, like `agent: main`"),
        ("", ":1: agent: is missing"),
        ("# nothing\n", ":1: agent: is missing"),
        ("agent:\n", ":1: agent: is missing"),
        ("agent: main\nlimts:\n  turns: 2\n", ":2: limts: no such key; did you mean limits?"),
        ("agent: main\nlimits:\n  depht: 2\n", ":3: limits.depht: no such key; did you mean limits.depth?"),
        ("agent: main\njitter: 0.1\n", ":2: jitter: no such key; did you mean retry.jitter?"),
        ("agent: main\nzzz: 0.1\n", ":2: zzz: no such key; remove it"),
        (
            "agent: main\nacp: {harnesses: {x: {}}}\n",
            ":2: acp.harnesses.x.argv: is missing; add it, see `mailboxd conf",
        ),
        ("agent: main\nacp: {harnesses: {x: {agv: [a]}}}\n", "no such key; did you mean acp.harnesses.x.argv?"),
        ("agent: main\nacp: {harnesses: {../x: {argv: [a]}}}\n", "name the harness with 1 to 128"),
        ("agent: main\nacp: {harnesses: {x: {argv: [a], cwd: /etc}}}\n", "relative to the workspace"),
        (
            "agent: main\nacp: {harnesses: {x: {argv: [a], cwd: a/../../b}}}\n",
            "write a directory relative to the workspace",
        ),
        ("agent: main\nacp: {harnesses: {x: {argv: [a], capabilities: [fly]}}}\n", "write one of 'read', 'edit'"),
        ("agent: main\nescalation: {runtime: acp}\n", ":2: escalation: write both"),
        ("agent: main\nescalation: {runtime: acp, harness: x}\n", "must be one of acp.harnesses: none"),
        (
            "agent: main\nacp: {harnesses: {x: {argv: [a]}}}\nescalation: {runtime: acp, harness: x, model: m}\n",
            ":3: escalation: name a harness, or",
        ),
        ("agent: main\nlimits:\n  turns: 0\n", ":3: limits.turns: write a number from 1 to 256, found 0"),
        ("agent: main\nlimits: {turns: 257}\n", ":2: limits.turns: write a number from 1 to 256, found 257"),
        (
            "agent: main\nlimits: {turns: 1e2}\n",
            ":2: limits.turns: write a whole number in digits, like 4, found '1e2'",
        ),
        ("agent: main\nlimits: {turns: -1}\n", "write a whole number in digits"),
        (f"agent: main\nlimits: {{turns: {'9' * 5000}}}\n", "write a whole number in digits"),
        ("agent: main\nretry: {jitter: .inf}\n", ":2: retry.jitter: write a number, like 5 or 0.5, found '.inf'"),
        ("agent: main\nretry: {jitter: 2}\n", ":2: retry.jitter: write a number from 0 to 1, found 2.0"),
        ("agent: main\nopenclaw:\n  discovery: yes\n", ":3: openclaw.discovery: write true or false, found 'yes'"),
        ("agent: main\nopenclaw:\n  command: []\n", ":3: openclaw.command: write at least one"),
        ("agent: main\nopenclaw:\n  command: openclaw\n", ":3: openclaw.command: write a list, like [one, two]"),
        ("agent: main\nopenclaw:\n  command:\n  - ''\n", ":4: openclaw.command.0: write a program or argument"),
        (
            "agent: main\nopenclaw: {environment: [A=1]}\n",
            "write the name of an environment variable, without its value",
        ),
        ("agent: main\nlog: {level: loud}\n", ":2: log.level: write one of 'debug', 'info', 'warning' or 'error'"),
        ("agent: main\nlog: text\n", ":2: log: is a group; write its keys below it, indented, found 'text'"),
        ("agent: main\nretry: {backoff_seconds: 1000}\n", ":2: retry: raise backoff_max_seconds"),
        ("agent: ../main\n", ":1: agent: write an agent id"),
        ("agent: [main]\n", ":1: agent: write one word or text, found ['main']"),
        ("agent: main\ngates: {reviewers: [a/b]}\n", ":2: gates.reviewers.0: write an agent id"),
    ],
)
def test_a_mistake_is_named_with_line_key_and_remedy(text: str, said: str, tmp_path: Path) -> None:
    assert f"{tmp_path}/config.yaml" in problem(tmp_path, text)
    assert said in problem(tmp_path, text)


def test_all_mistakes_are_named_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    said = problem(tmp_path, "agent: main\nlog: {level: loud}\nlimits:\n  depth: 0\n  turns: 0\nfoo: 1\n").splitlines()
    assert [line.removeprefix(f"{tmp_path}/config.yaml:").split(":")[0] for line in said] == ["2", "4", "5", "6"]


def test_very_many_mistakes_are_counted(tmp_path: Path) -> None:
    said = problem(tmp_path, "agent: main\n" + "".join(f"key{n}: 1\n" for n in range(500)))
    assert said.endswith("and 490 more")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "agent: a\nlimits:\n  turns: 1\n  turns: 2\n",
            ":4: the key 'turns' occurs twice, in lines 3 and 4. Keep one of them.",
        ),
        ("agent: &a main\n", ":1: the anchor or alias 'a' is not accepted. Write the value out"),
        ("agent: main\nlimits: *a\n", ":2: the anchor or alias 'a' is not accepted"),
        ("agent: !!python/name:os.system main\n", ":1: the tag"),
        ("agent: main\n<<: {limits: {turns: 1}}\n", ":2: the merge key `<<` is not accepted"),
        ("agent: main\n---\nagent: other\n", ":2: there is a directive or a second document"),
        ("- agent\n", ":1: the file is not a mapping"),
        ("agent: main\n? [a]\n: b\n", ":2: a key is a mapping or a list"),
        ("agent: main\n\tlimits: 3\n", ":2: "),
        ("agent: [main\n", ":1: "),
        ("agent: {a: {b: {c: {d: {e: f}}}}}\n", ":1: nested more than 5 levels deep"),
        ("agent: main\nlimits: " + "[" * 30_000, "nested more than 5 levels deep"),
        ("agent: ma\x00in\n", ":1: the character U+0000 is not allowed in YAML"),
        (b"agent: m\xff\n", "byte 8 is not UTF-8"),
        ("a" * 70_000, "is larger than 65536 bytes"),
        ("agent: main\n\x1b[2J: 1\n", ":2: the character U+001B is not allowed in YAML"),
        ('agent: main\n"\\e[2J\\n": 1\n', ":2: '\\x1b[2J\\n': no such key"),
        ('agent: "\\e[2J"\n', "found '\\x1b[2J'"),
        ("x" * 60_000 + ": 1\nagent: main\n", ":1: invalid YAML at column 60001: mapping values are not allowed"),
    ],
)
def test_hostile_yaml_is_refused(text: str | bytes, said: str, tmp_path: Path) -> None:
    assert said in problem(tmp_path, text)


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_whatever_stands_in_the_file_it_is_a_configuration_or_a_config_error(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory, contextlib.suppress(ConfigError):
        assert isinstance(config.load(write(Path(directory), raw)), BaseModel)


def test_a_byte_order_mark_and_windows_line_ends_are_taken(tmp_path: Path) -> None:
    assert config.load(write(tmp_path, "\ufeffagent: main\r\nlimits:\r\n  turns: 2\r\n")).limits.turns == 2


def test_a_missing_file_is_answered_with_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`mailboxd init` writes one"):
        config.load(tmp_path / "config.yaml")


def test_a_pipe_in_its_place_does_not_hold_up_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match="is not a regular file"):
        config.load(tmp_path / "config.yaml")


def test_a_directory_in_its_place_is_no_bug(tmp_path: Path) -> None:
    """A container makes one where a file was to be mounted that is not there."""
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(ConfigError, match="is not a regular file"):
        config.load(tmp_path / "config.yaml")


def test_a_file_that_everybody_may_change_is_not_believed(tmp_path: Path) -> None:
    path = write(tmp_path, "agent: main\n")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod 600"):
        config.load(path)


# Cost.


def test_importing_the_package_does_not_import_pydantic_or_yaml() -> None:
    code = "import sys, mailboxd.formats.config; sys.exit(' '.join({'pydantic', 'yaml'} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_loading_takes_less_than_60_ms(tmp_path: Path) -> None:
    path = write(tmp_path, re.sub(r"(?m)^#(?=( {2})?[a-z_]+:)", "", config.default_text("main")))
    took = []
    for _ in range(5):
        before = time.process_time()
        config.load(path)
        took.append(time.process_time() - before)
    assert min(took) < 0.060
