"""The section `## Planned Actions`: what is accepted, what is refused and where, and round trips."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.approvals import Action, ActionKind, ActionRules, digest, in_words, may_not_perform
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.spec import MANUAL_ID, MAX_ACTIONS, read_action, read_actions, render_actions
from tests.protocol.plan_strategies import KEYS, storable

COMMAND = Action("publish", ActionKind.COMMAND, argv=("make", "publish"))
MESSAGE = Action("tell", ActionKind.MESSAGE, channel="slack", target="#team", text="It is out")
HTTP = Action("hook", ActionKind.HTTP, method="POST", url="https://example.org/hook")


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("", ()),
        ("None.", ()),
        ("*none*", ()),
        ("- none", ()),
        ("n/a", ()),
        ("- id: publish\n  kind: command\n  argv: [make, publish]", (COMMAND,)),
        ("- {id: publish, kind: command, argv: [make, publish]}", (COMMAND,)),
        ("[{id: publish, kind: command, argv: [make, publish]}]", (COMMAND,)),
        ("```yaml\n- id: publish\n  kind: command\n  argv: [make, publish]\n```", (COMMAND,)),
        ("Then:\n\n~~~\n- id: publish\n  kind: command\n  argv: [make, publish]\n~~~\n\nThat is all.", (COMMAND,)),
        ("- id: publish\n  kind: command\n  action: [make, publish]", (COMMAND,)),
        ("- id: publish\n  kind: command\n  action: {argv: [make, publish]}", (COMMAND,)),
        (
            "- id: publish\n  kind: command\n  action: {action: Out, argv: [make, publish]}",
            (replace(COMMAND, action="Out"),),
        ),
        ('- {id: tell, kind: message, channel: slack, target: "#team", text: It is out}', (MESSAGE,)),
        ("- {id: hook, kind: http, method: post, url: https://example.org/hook}", (HTTP,)),
        (
            '- {id: hook, kind: http, method: POST, url: https://example.org/hook, env: [KEY], headers: {X: "${KEY}"}}',
            (replace(HTTP, env=("KEY",), headers=(("X", "${KEY}"),)),),
        ),
        (
            "- {id: a, kind: command, argv: [x, 007, no, 1e3], timeout: 60}",
            (Action("a", ActionKind.COMMAND, argv=("x", "007", "no", "1e3"), timeout=60),),
        ),
        (
            "- {id: conf, kind: file, path: /srv/site.conf, source: out/site.conf}",
            (Action("conf", ActionKind.FILE, path="/srv/site.conf", source="out/site.conf"),),
        ),
        (
            "- {id: conf, kind: file, path: /srv/empty}",
            (Action("conf", ActionKind.FILE, path="/srv/empty"),),
        ),
        (
            "Publish notes/1.4.md on the website",
            (Action(MANUAL_ID, ActionKind.MANUAL, action="Publish notes/1.4.md on the website"),),
        ),
        ("- Publish it\n- Tell all", (Action(MANUAL_ID, ActionKind.MANUAL, action="- Publish it\n- Tell all"),)),
    ],
)  # fmt: skip
def test_what_is_taken(text: str, actions: tuple[Action, ...]) -> None:
    assert read_actions(text) == actions


def item(fields: str) -> str:
    return f"- {{id: a, {fields}}}"


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        (item("kind: shell, argv: [x]"), "bad-action", "kind"),
        ("- {id: a, argv: [x]}", "bad-action", "kind"),
        ("- {id: ../a, kind: manual, action: x}", "bad-id", "../a"),
        ("- {id: -a, kind: manual, action: x}", "bad-id", "-a"),
        ("- {kind: manual, action: x}", "bad-id", "the first action has no `id:`"),
        ("- type: command\n  command: [touch, x]", "bad-id", "the first action has no `id:`"),
        ("- {id: a, kind: manual, action: x}\n- {kind: manual, action: y}", "bad-id", "the second action has no `id:`"),
        ("- {id: a, argv: [x]}", "bad-action", "the action a has no `kind:`"),
        ("- {id: a, kind: manual, action: x}\n- {id: a, kind: manual, action: y}", "bad-action", "two actions"),
        (item("kind: command"), "bad-action", "argv"),
        (item("kind: command, argv: make publish"), "bad-action", "list of words"),
        (item("kind: command, argv: []"), "bad-action", "argv"),
        (item('kind: command, argv: ["", x]'), "bad-action", "not name a program"),
        (item("kind: command, argv: [x, [y]]"), "wrong-type", "text"),
        (item(f"kind: command, argv: [{', '.join(['x'] * 65)}]"), "bad-action", "list of words"),
        (item("kind: command, argv: [x], shell: true"), "bad-action", "shell"),
        (item("kind: command, argv: [x], cwd: ../up"), "bad-action", "cwd"),
        (item("kind: command, argv: [x], env: [A=b]"), "bad-action", "environment"),
        (item("kind: command, argv: [x], timeout: soon"), "wrong-type", "timeout"),
        (item("kind: command, argv: [x], timeout: 86401"), "field-range", "timeout"),
        (item('kind: command, argv: [x], risk: "a\\e[31m"'), "bad-action", "displayed"),
        (item('kind: command, argv: [x], idempotency_key: "a b"'), "bad-action", "idempotency_key"),
        (item("kind: command, argv: [x], verify: make check"), "bad-action", "verify"),
        (item("kind: message, channel: slack, text: hi"), "bad-action", "target"),
        (item("kind: message, channel: slack, target: --help, text: hi"), "bad-action", "dash"),
        (item("kind: message, channel: slack, target: x, account: -a, text: hi"), "bad-action", "dash"),
        (item("kind: file, path: notes.txt"), "bad-action", "path"),
        (item("kind: file, path: /srv/../etc/passwd"), "bad-action", "path"),
        (item("kind: file, path: /srv//x"), "bad-action", "path"),
        (item("kind: file, path: /srv/x, source: ../../x"), "bad-action", "source"),
        (item("kind: file, path: /srv/x, source: /etc/passwd"), "bad-action", "source"),
        (item("kind: file, path: /srv/x, source: a, content: b"), "bad-action", "both"),
        (item("kind: http, method: TRACE, url: http://x/"), "bad-action", "method"),
        (item("kind: http, method: GET, url: file:///etc/passwd"), "bad-action", "url"),
        (item("kind: http, method: GET, url: http://a:b@x/"), "bad-action", "url"),
        (item('kind: http, method: GET, url: "http://:b@x/"'), "bad-action", "url"),
        (item("kind: http, method: GET, url: http:///x"), "bad-action", "url"),
        (item("kind: http, method: GET, url: http://x:99999/"), "bad-action", "url"),
        (item("kind: http, method: GET, url: http://x/a b"), "bad-action", "url"),
        (item("kind: http, method: GET, url: http://x/ü"), "bad-action", "url"),
        (item("kind: http, method: CONNECT, url: http://x/"), "bad-action", "method"),
        (item('kind: http, method: "GET /x HTTP/1.1\\r\\nHost: y", url: http://x/'), "bad-action", "method"),
        (item("kind: http, method: GET, url: http://x/, headers: {Host: y}"), "bad-action", "may not set"),
        (item("kind: http, method: GET, url: http://x/, headers: {idempotency-key: y}"), "bad-action", "may not set"),
        (item('kind: http, method: GET, url: "http://[::1"'), "bad-action", "url"),
        (item('kind: http, method: GET, url: http://x/, headers: {"A: b": c}'), "bad-action", "header"),
        (item('kind: http, method: GET, url: http://x/, headers: {A: "b\\r\\nC: d"}'), "bad-action", "header"),
        (item("kind: http, method: GET, url: http://x/, headers: [A]"), "wrong-type", "mapping"),
        ("- {id: a, id: b, kind: manual, action: x}", "duplicate-key", "twice"),
        ("- id: &x a\n  kind: manual\n  action: *x", "alias", "anchor"),
        ("```yaml\n- id: a\n  kind: manual\n", "bad-yaml", "invalid YAML"),
        (
            "\n".join(f"- {{id: a{n}, kind: manual, action: x}}" for n in range(MAX_ACTIONS + 1)),
            "field-range",
            "more than",
        ),
        ("x" * 262_145, "field-range", "too long"),
    ],
)
def test_what_is_refused_says_why(text: str, rule: str, said: str) -> None:
    with pytest.raises(MessageError) as refused:
        read_actions(text, path="note.md", first_line=7)
    assert refused.value.rule == rule
    assert said in str(refused.value)
    assert len(str(refused.value)) < 700


def test_a_refusal_names_the_line_in_the_file() -> None:
    with pytest.raises(MessageError) as refused:
        read_actions("Then:\n\n```yaml\n- id: a\n  kind: command\n  argv: make\n```", path="note.md", first_line=10)
    assert (refused.value.path, refused.value.line, refused.value.field) == ("note.md", 15, "0.argv")


# Round trips.


def words() -> st.SearchStrategy[tuple[str, ...]]:
    first = storable().filter(lambda word: word != "")
    return st.builds(lambda one, more: (one, *more), first, st.lists(storable(), max_size=3))


def line() -> st.SearchStrategy[str]:
    return storable().filter(lambda text: text.isprintable() and not text.startswith("-"))


def text() -> st.SearchStrategy[str]:
    return storable().filter(lambda said: said != "")


NAMES = st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), unique=True, max_size=3).map(tuple)
HEADERS = st.lists(
    st.tuples(st.from_regex(r"[A-Za-z0-9-]{1,8}", fullmatch=True), st.from_regex(r"[ -~]{0,12}", fullmatch=True)),
    unique_by=lambda pair: pair[0],
    max_size=3,
).map(tuple)
ALWAYS: dict[str, Any] = {
    "id": KEYS,
    "action": storable(),
    "risk": line(),
    "idempotency_key": st.just("") | st.from_regex(r"[!-~]{1,20}", fullmatch=True),
    "verify": st.just(()) | words(),
    "undo": st.just(()) | words(),
}
OF_KIND: dict[ActionKind, dict[str, Any]] = {
    ActionKind.COMMAND: {
        "argv": words(),
        "cwd": st.sampled_from(["", "out", "out/site", "/srv"]),
        "env": NAMES,
        "timeout": st.integers(0, 86_400),
    },
    ActionKind.MESSAGE: {
        "channel": line().filter(bool),
        "target": line().filter(bool),
        "account": line(),
        "text": text(),
    },
    ActionKind.FILE: {"path": st.sampled_from(["/a", "/srv/a b", "/srv/\u00e9"]), "content": storable()},
    ActionKind.HTTP: {
        "method": st.sampled_from(["GET", "POST"]),
        "url": st.sampled_from(["http://x/", "https://x.org/?a=b#c", "http://[::1]:8/"]),
        "headers": HEADERS,
        "body": storable(),
        "env": NAMES,
        "timeout": st.integers(0, 86_400),
    },
    ActionKind.MANUAL: {"action": text()},
}


@st.composite
def actions(draw: st.DrawFn) -> Action:
    kind = draw(st.sampled_from(ActionKind))
    fields = {name: draw(strategy) for name, strategy in {**ALWAYS, **OF_KIND[kind]}.items()}
    return Action(kind=kind, **fields)


@pytest.mark.slow
@given(st.lists(actions(), unique_by=lambda action: action.id, max_size=4).map(tuple))
def test_what_is_written_is_read_as_the_same_actions(declared: tuple[Action, ...]) -> None:
    written = render_actions(declared)
    assert read_actions(written) == declared
    lines = written.splitlines()
    if written.startswith("```yaml"):
        assert not any(line.startswith(("```", "~~~", "#", "---")) for line in lines[1:-1])


@given(storable())
def test_prose_is_an_action_by_hand_or_none_and_is_written_as_it_was(said: str) -> None:
    try:
        found = read_actions(said)
    except MessageError:
        return
    assert read_actions(render_actions(found)) == found


@pytest.mark.slow
@given(actions())
def test_an_action_that_comes_as_json_is_read_by_the_same_rules(action: Action) -> None:
    said = {
        name: list(value) if isinstance(value, tuple) and name != "headers" else value
        for name in Action.__slots__
        if (value := getattr(action, name)) not in ("", (), 0)
    }
    if "headers" in said:
        said["headers"] = dict(action.headers)
    assert read_action(said) == action


@pytest.mark.parametrize("rotten", ["\ud800", "\0"])
def test_what_cannot_be_stored_is_refused(rotten: str) -> None:
    with pytest.raises(MessageError):
        read_action({"id": "a", "kind": "manual", "action": f"x{rotten}"})


@pytest.mark.slow
@given(actions(), actions())
def test_a_digest_is_of_everything_that_would_happen(one: Action, other: Action) -> None:
    assert (digest(one) == digest(other)) is (one == other)
    assert len({digest(one), digest(one, "a"), digest(one, "", "a"), digest(one, "a", "a")}) == 4


@pytest.mark.slow
@given(actions())
def test_it_is_reported_on_one_line(action: Action) -> None:
    said = in_words(action)
    assert len(said) <= 200
    assert "\n" not in said


# What the configuration allows.


@pytest.mark.parametrize(
    ("env", "header", "allowed", "says"),
    [
        ((), "", (), None),
        (("KEY",), "", ("KEY",), None),
        (("KEY",), "", (), "does not name KEY"),
        (("KEY",), "Bearer ${KEY}", ("KEY",), None),
        ((), "Bearer ${KEY}", ("KEY",), "its env does not name"),
        ((), "Bearer ${KEY}", (), "does not name KEY"),
        ((), "Bearer $KEY", (), None),
    ],
)
def test_an_action_is_given_only_what_the_configuration_names(
    env: tuple[str, ...], header: str, allowed: tuple[str, ...], says: str | None
) -> None:
    action = replace(HTTP, env=env, headers=(("X", header),))
    why = may_not_perform(ActionRules(frozenset(allowed)), action)
    assert why is None if says is None else says in str(why)


# Documentation.

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/side-effects.md", "templates/openclaw-skill/references/answers.md", "templates/answer-forms.md.j2")


@pytest.mark.parametrize("page", PAGES)
def test_every_example_is_right(page: str) -> None:
    blocks = re.findall(r"```yaml\n(- id: .*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    found = [action for block in blocks for action in read_actions(block)]
    assert found
    if not page.endswith(".j2"):
        assert {action.kind for action in found} == set(ActionKind)


def test_every_field_is_explained() -> None:
    text = (ROOT / PAGES[0]).read_text(encoding="utf-8")
    assert [field.name for field in fields(Action) if not re.search(rf"`{field.name}`|\b{field.name}: ", text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "- action: Publish\n  argv: [make, publish]\n  id: publish\n  kind: command",
        '[{"action": "Publish", "argv": ["make", "publish"], "id": "publish", "kind": "command"}]',
        '```json\n[\n  {"action": "Publish", "kind": "command", "argv": ["make", "publish"], "id": "publish"}\n]\n```',
    ],
)
def test_a_list_of_actions_is_one_whatever_comes_first_in_an_item(text: str) -> None:
    assert read_actions(text) == (Action("publish", ActionKind.COMMAND, "Publish", argv=("make", "publish")),)


@pytest.mark.parametrize(
    "text",
    [
        "- Publish: the site\n- Tell: the team",
        "- Publish: the site\n  Note: on Friday",
        "Of a kind: publish it",
        "- call them",
    ],
)
def test_a_list_of_words_is_prose(text: str) -> None:
    assert read_actions(text) == (Action("manual", ActionKind.MANUAL, action=text),)
