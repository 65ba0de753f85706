"""Approved messages and notices over the real `openclaw message send`, to a channel that a server of ours plays."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.approvals import ActionRules, Performed
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.perform.actions.gate import GateDir
from mailboxd.perform.actions.perform import perform
from mailboxd.perform.actions.result import ActionContext, ActionResult
from tests.actions.workspace_with_gate import APPROVAL, action
from tests.e2e.support import eventually
from tests.live.company import LiveCompany
from tests.live.gateway import Gateway, run_of
from tests.live.install import standard
from tests.live.model import Model, Text
from tests.live.test_session_notes import RELEASES, call


class Telegram:
    """The bot API as far as OpenClaw asks it; `refuses` is what a message is answered with."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.refuses: Mapping[str, Any] | None = None
        self.updates: list[Mapping[str, Any]] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def say(self, text: str, number: int = 1) -> None:
        """Somebody writes to the bot."""
        person, chat = {"id": 42, "is_bot": False, "first_name": "Ann"}, {"id": 42, "type": "private"}
        said = {"message_id": number, "date": int(time.time()), "from": person, "chat": chat, "text": text}
        self.updates = [{"update_id": 1000 + number, "message": said}]

    def answer(self, path: str, raw: bytes) -> Mapping[str, Any]:
        if path.endswith("sendMessage"):
            if self.refuses is not None:
                return self.refuses
            self.sent.append(json.loads(raw)["text"])
            chat = {"id": 42, "type": "private"}
            return {"ok": True, "result": {"message_id": 77, "date": 1, "chat": chat, "text": "x"}}
        if path.endswith("getUpdates"):
            time.sleep(0.5)
            updates, self.updates = self.updates, []
            return {"ok": True, "result": updates}
        return {"ok": True, "result": {"id": 1, "is_bot": True, "first_name": "b", "username": "b"}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        telegram = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                said = telegram.answer(self.path, raw)
                body = json.dumps(said).encode()
                self.send_response(said.get("error_code", 200))
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def telegram() -> Iterator[Telegram]:
    made = Telegram()
    yield made
    made.server.shutdown()
    made.server.server_close()


def bot(telegram: Telegram) -> dict[str, Any]:
    return {"telegram": {"enabled": True, "botToken": "1:A", "apiRoot": telegram.url}}


@pytest.mark.usefixtures("_installed")
def test_a_message_is_sent_as_it_was_shown_or_is_said_not_to_be(telegram: Telegram, tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "http://127.0.0.1:1/v1", {"alpha": {}}, channels=bot(telegram))
    Workspace.create(tmp_path / "ws")
    place = GateDir(tmp_path / "ws", APPROVAL)
    setting = ActionContext(place.root, gateway.env, time.monotonic, ActionRules())

    def send(text: str) -> ActionResult:
        place.create()
        return perform(action("message", channel="telegram", target="42", text=text), "k", "", place, setting)

    assert send("hello").state is Performed.FAILED, "nobody is there: nothing was sent"
    try:
        gateway.start()
        text = "-- hello,\n$HOME \"world\" 'ü'"
        done = send(text)
        assert (done.state, done.summary) == (Performed.DONE, "sent, as message 77")
        assert telegram.sent == [text]
        telegram.refuses = {"ok": False, "error_code": 400, "description": "Bad Request: chat not found"}
        lost = send("lost")
        assert lost.state is Performed.UNKNOWN
        assert "chat not found" in lost.summary
    finally:
        gateway.close()


@pytest.mark.usefixtures("_installed")
def test_a_result_goes_to_the_chat_and_to_the_session_that_asked(telegram: Telegram, tmp_path: Path) -> None:
    with Model() as model:
        gateway = Gateway(tmp_path / "gateway", model.url, run_of(["alpha"]), channels=bot(telegram))
        company = LiveCompany(gateway, model, ["alpha"])
        try:
            gateway.start()
            company.employ("alpha", {"notify": {"reply_to": ["telegram:42", "session:agent:alpha:*"]}})
            alpha = company["alpha"]
            model.on(Text("It is warm."), task="chat")
            model.on(Text("It is cold."), task="session")
            alpha.start()
            for name, where in (("chat", "telegram:42"), ("session", "session:agent:alpha:chat")):
                sent = alpha.call("send", "--task-id", name, "--reply-to", where, "How is the weather?")
                assert sent.returncode == 0, sent.stderr
            eventually(lambda: telegram.sent, 120, alpha.last_words)
            assert telegram.sent[0].startswith("mailboxd of alpha, task chat: is completed\n\nIt is warm.")
            eventually(lambda: model.made(kind=""), 120, alpha.last_words)
            assert "task session: is completed" in model.made(kind="")[0].text
            which = (
                "SELECT o.id FROM v_outbox o JOIN v_tasks t ON t.id = o.task"
                " WHERE o.kind = 'notify' AND local_id = 'chat'"
            )
            again = {"idempotencyKey": f"{alpha.query(which)[0]['id']}.0"}
            repeated = {"channel": "telegram", "to": "42", "message": telegram.sent[0], **again}
            done = gateway.openclaw("gateway", "call", "send", f"--params={json.dumps(repeated)}", "--json")
            assert done.returncode == 0, done.stderr
            assert len(telegram.sent) == 1
            company.at_rest()
        finally:
            company.close()
            gateway.close()


@pytest.mark.soak
@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("release", RELEASES)
def test_the_person_of_a_session_in_a_messenger_is_sent_what_its_agent_reads_in_the_row(
    telegram: Telegram, tmp_path: Path, release: str
) -> None:
    channel = bot(telegram)
    channel["telegram"] |= {"dmPolicy": "open", "allowFrom": ["*"]}
    with Model() as model:
        gateway = Gateway(
            tmp_path / "gateway", model.url, run_of(["alpha"]), installation=standard(release), channels=channel
        )
        company = LiveCompany(gateway, model, ["alpha"])
        try:
            gateway.install_plugin()
            gateway.start()
            company.employ("alpha", {"notify": {"reply_to": ["session:agent:alpha:*"]}})
            alpha = company["alpha"]
            telegram.say("Hello, what is the weather?")
            eventually(lambda: "The outcome." in telegram.sent, 120, gateway.last_words)
            sessions = call(gateway, "sessions.list", agentId="alpha")["sessions"]
            (key,) = {one["key"] for one in sessions}
            model.on(Text("It is warm."), task="warm")
            alpha.start()
            assert alpha.call("send", "--task-id", "warm", "--reply-to", f"session:{key}", "How warm?").returncode == 0
            eventually(lambda: len(telegram.sent) == 2, 120, alpha.last_words)
            assert telegram.sent[1].startswith("mailboxd of alpha, task warm: is completed\n\nIt is warm.")
            rows = call(gateway, "chat.history", sessionKey=key)["messages"]
            mine = [row for row in rows if row.get("provider") == "mailboxd"]
            assert [row["content"][0]["text"].splitlines()[0] for row in mine] == [
                "mailboxd of alpha, task warm: is completed"
            ]
            assert len(model.made(kind="")) == 1
            telegram.say("How is it?", 2)
            eventually(lambda: len(model.made(kind="")) == 2, 120, gateway.last_words)
            heard = model.made(kind="")[-1].heard
            assert heard.count("task warm: is completed") == 1, (
                "OpenClaw's own row of what it has sent is not for models"
            )
            company.at_rest()
        finally:
            company.close()
            gateway.close()
