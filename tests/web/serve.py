"""The real server as a process of its own, and a client that does what a browser does, and what no browser would."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from tests.e2e.support import MAILBOXD, environment, eventually


@dataclass(slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def words(self) -> str:
        """The visible text, without markup."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.text)).split())


@dataclass(slots=True)
class Browser:
    """Requests to one server; `cookie` is the session, when it has entered."""

    port: int
    link: str
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: str = "", headers: Mapping[str, str | None] | None = None) -> Answer:
        """One request with exactly these headers more or (None) less."""
        said: dict[str, str | None] = {"host": f"127.0.0.1:{self.port}"}
        if self.cookie:
            said["cookie"] = self.cookie
        if method == "POST":
            said |= {"origin": self.origin, "content-type": "application/x-www-form-urlencoded"}
            said["content-length"] = str(len(body.encode()))
        said |= dict(headers or {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in said.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body.encode() or None)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str | None] | None = None) -> Answer:
        return self.ask("GET", path, headers=headers)

    def enter(self) -> Answer:
        """Follow the link that was printed, and keep the cookie."""
        answer = self.get(self.link.removeprefix(self.origin))
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def form(self, path: str, headers: Mapping[str, str | None] | None = None, **fields: str) -> Answer:
        """Send the form of the page at `path` that has a button for these fields, with these filled in."""
        return self.post(path, self.filled(path, **fields), headers)

    def filled(self, path: str, **fields: str) -> dict[str, str]:
        """The fields of that form, with these filled in."""
        page = self.get(path).text
        button = next(
            name
            for name in (
                "decision",
                "all",
                "order",
                "send",
                "correct",
                "dismiss",
                "undo-all",
                "undo",
                "save",
                "forget",
                "repetition",
                "standstill",
                "read",
                "read_until",
            )
            if name in fields
        )
        forms = re.findall(r'<form method="post"[^>]*>(.*?)</form>', page, re.S)
        found = next((form for form in forms if f'name="{button}"' in form), None)
        assert found, page
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', found))
        return {**hidden, **fields}

    def post(self, path: str, fields: Mapping[str, str], headers: Mapping[str, str | None] | None = None) -> Answer:
        return self.ask("POST", path, urlencode(fields), headers)

    def key(self, name: str = "alpha") -> str:
        """The workspace's name in addresses."""
        found = re.search(rf'href="/w/({name}-[0-9a-f]{{8}})"', self.get("/").text)
        assert found, self.get("/").words
        return found[1]


@contextlib.contextmanager
def served(cwd: Path, env: Mapping[str, str], *words: str) -> Iterator[Browser]:
    """`mailboxd web` on a free port, and a browser that has entered."""
    with (cwd / "web.log").open("ab") as log:
        process = subprocess.Popen(
            [*MAILBOXD, "web", "--port", "0", *words],
            cwd=cwd, env=environment(env), stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        assert link, (cwd / "web.log").read_text()
        browser = Browser(urlsplit(link).port or 0, link)
        eventually(lambda: _listens(browser), 20)
        assert browser.enter().status == 303
        yield browser
    finally:
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM), (cwd / "web.log").read_text()


def _listens(browser: Browser) -> bool:
    try:
        return browser.get("/static/page.css").status == 200
    except OSError:
        return False
