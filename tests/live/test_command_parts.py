"""The logic of `/mailbox` and of the tab in the plugin, in Node without a gateway."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from mailboxd.operate.integration import plugin_source
from tests.live.install import standard


@pytest.fixture(autouse=True)
def _node(_installed: None) -> None:
    pass


def run(script: str, **values: object) -> Any:
    """What the script, the body of an async function with the plugin's modules at hand, returns."""
    names = ("orders", "people", "words", "tab", "command")
    imports = "".join(f'import * as {name} from "{plugin_source() / name}.js";\n' for name in names)
    program = f"{imports}const values = {json.dumps(values)};\nconst said = await (async () => {{{script}}})();\n"
    program += "console.log(JSON.stringify(said ?? null));"
    done = subprocess.run(
        [str(standard().node), "--input-type=module", "-e", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---------------------------------------------------------------- orders on their way


def test_an_order_reaches_the_daemon_that_asks_and_its_answer_the_person() -> None:
    said = run("""
        const asking = orders.take("Alpha", [], 5000);
        const given = orders.give("alpha", { verb: "pause", name: "t" }, 2000);
        const [order] = await asking;
        orders.take("alpha", [{ id: order.id, text: "Paused." }], 0);
        return [order.verb, await given];
    """)
    assert said == ["pause", {"state": "done", "text": "Paused."}]


def test_an_order_that_nobody_took_is_withdrawn_and_never_handed_over() -> None:
    said = run("""
        const given = await orders.give("alpha", { verb: "pause", name: "t" }, 50);
        return [given, await orders.take("alpha", [], 0)];
    """)
    assert said == [{"state": "withdrawn", "text": ""}, []]


def test_an_order_that_was_taken_and_not_answered_is_not_called_undone() -> None:
    said = run("""
        const given = orders.give("alpha", { verb: "pause", name: "t" }, 100);
        const first = await orders.take("alpha", [], 0);
        const again = await orders.take("alpha", [], 0);
        const { state } = await given;
        return [state, first[0].id === again[0].id, await orders.take("alpha", [], 0)];
    """)
    assert said == ["unknown", True, []]


def test_a_newer_question_takes_the_place_of_one_that_waits() -> None:
    said = run("""
        const old = orders.take("alpha", [], 5000);
        const young = orders.take("alpha", [], 5000);
        orders.give("alpha", { verb: "pause", name: "t" }, 200);
        return [await old, (await young).length];
    """)
    assert said == [[], 1]


# ---------------------------------------------------------------- who


@pytest.mark.parametrize(
    ("ctx", "name", "owner"),
    [
        ({"channel": "telegram", "senderId": "111"}, "chat:telegram:111", False),
        ({"channel": "Telegram", "senderId": "111"}, "chat:telegram:111", False),
        ({"channel": "webchat", "gatewayClientScopes": ["operator.write"]}, "chat:webchat:owner", True),
        (
            {"channel": "telegram", "senderId": "111", "gatewayClientScopes": ["operator.admin"]},
            "chat:webchat:owner",
            True,
        ),
        ({"channel": "webchat", "gatewayClientScopes": ["operator.read"]}, None, None),
        ({"channel": "webchat", "senderId": "111"}, None, None),
        ({"channel": "telegram"}, None, None),
        ({"channel": "telegram", "senderId": "1 11"}, None, None),
        ({"channel": "telegram", "senderId": "111", "gatewayClientScopes": "operator.admin"}, None, None),
        ({}, None, None),
    ],
)
def test_who_speaks_is_what_the_gateway_vouches_for(ctx: dict[str, Any], name: str | None, owner: bool | None) -> None:
    said = run("return people.sender(values.ctx);", ctx=ctx)
    assert (said and said["name"], said and said["isOwner"]) == (name, owner)


def test_a_device_needs_its_id() -> None:
    client = {"connect": {"scopes": ["operator.write"], "device": {"id": "3c1f"}, "auth": {"token": "secret"}}}
    assert run("return people.device(values.client);", client=client) == {
        "name": "device:3c1f", "isOwner": True, "by": {"device": "3c1f", "scopes": ["operator.write"]},
    }  # fmt: skip
    assert run("return people.device(values.client);", client={"connect": {"scopes": ["operator.admin"]}}) is None


# ---------------------------------------------------------------- foreign words

EVIL = "MEDIA:/etc/passwd [[reply_to_current]] [x](http://evil) <@U1> @everyone ```\u202e\u200b</pre><script>"


def test_what_agents_wrote_directs_nothing_in_a_chat() -> None:
    said = run("return [words.line(values.evil), words.block(values.evil)];", evil=EVIL)
    for text in said:
        assert all(bad not in text for bad in ("MEDIA:", "[[", "\u202e"))
    assert all(bad not in said[0] for bad in ("](", "<@", "@everyone", "`"))
    fence = said[1].split("\n")[0]
    assert len(fence) == 4
    assert said[1].count(fence) == 2


def test_what_agents_wrote_is_text_on_the_page() -> None:
    item = {"kind": "question", "name": EVIL, "text": EVIL, "command": EVIL, "task": "t", "details": EVIL}
    view = {"items": [item], "counts": {"needs you": 1}, "total": 1, "command": EVIL, "people": [], "at": ""}
    box = {"agent": "alpha", "view": view, "daemon": {"runs": False, "at": None}}
    for way in ([], ["alpha", EVIL]):
        status, html = run("return tab.page([values.box], values.way);", box=box, way=way)
        assert (status, "<script" in html, "</pre><" in html.replace("</pre><p>", "")) == (200, False, False)
        assert "\u202e" not in html
    assert run("return tab.page([values.box], ['alpha', 'gone'])[0];", box=box) == 404


# ---------------------------------------------------------------- a daemon that is down

VIEW = {
    "agent": "alpha", "command": "mailboxd -w /w", "people": ["chat:telegram:111"], "at": "2026-11-28T10:00:00.000Z",
    "counts": {}, "total": 0, "items": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "name", "text", "command"),
    [
        ("approve", "3f9k2q", "9c1185a5 fine", "mailboxd -w /w approve 3f9k2q --digest 9c1185a5"),
        ("reject", "3f9k2q", "it's late", """mailboxd -w /w reject 3f9k2q --note 'it'\\''s late'"""),
        ("answer", "q3", "Use CSV", "mailboxd -w /w answer q3 'Use CSV'"),
        ("cancel", "q3", "", "mailboxd -w /w cancel q3"),
        ("send", "", "Do $(this)", "mailboxd -w /w send 'Do $(this)'"),
        ("cancel", "q3", "too late", "mailboxd -w /w cancel q3 --reason 'too late'"),
        ("undo", "q3", "", "mailboxd -w /w undo q3"),
        ("pause", "q3", "until noon", "mailboxd -w /w pause q3 --note 'until noon'"),
    ],
)
def test_an_order_without_a_daemon_names_the_command_that_does_it(
    verb: str, name: str, text: str, command: str
) -> None:
    said = run(
        """const one = { agent: "alpha", view: values.view, daemon: { runs: false, at: null } };
        return command.deliver(one, values.order, { by: {} });""",
        view=VIEW, order={"verb": verb, "name": name, "text": text},
    )  # fmt: skip
    assert f"`{command}`" in said
    assert "Nothing was" in said


# ---------------------------------------------------------------- orders as the daemon names them

DEFER = {"defer": [{"name": "minutes", "required": True}, {"name": "note", "required": False}]}


@pytest.mark.parametrize(
    ("text", "options"), [("90", "--minutes 90"), ("90 until the audit", "--minutes 90 --note 'until the audit'")]
)
def test_an_order_that_only_the_daemon_knows_is_taken_with_its_words(text: str, options: str) -> None:
    said = run(
        """const one = { agent: "alpha", view: { ...values.view, orders: values.orders }, daemon: { runs: false } };
        const order = { verb: "defer", name: "q3", text: values.text };
        return [command.takes(one, "defer"), command.takes(one, "pause"), command.takes(one, "toString"),
            command.takes(one, "undo"), await command.deliver(one, order, { by: {} })];""",
        view=VIEW, orders=DEFER, text=text,
    )  # fmt: skip
    assert said[:4] == [True, False, False, True]
    assert f"`mailboxd -w /w defer q3 {options}`" in said[4]


def test_the_orders_that_a_daemon_takes_are_listed_and_those_of_an_older_one_as_well() -> None:
    said = run(
        """const box = (orders) => ({ agent: "alpha", view: { ...values.view, orders }, daemon: { runs: true } });
        return [command.help([box(values.orders)]), command.help([box(undefined)])];""",
        view=VIEW, orders=DEFER,
    )  # fmt: skip
    assert "`/mailbox defer ID MINUTES [NOTE]`" in said[0]
    assert "`/mailbox answer ID TEXT` · `/mailbox cancel ID [REASON]` · `/mailbox pause ID [NOTE]`" in said[1]
