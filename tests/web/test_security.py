"""The page refuses other host names, origins and methods, requests without a session, and untrusted markup."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import stat
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mailboxd.core.model import PlannedChild
from tests.cli.stage import Stage, child
from tests.e2e.support import MAILBOXD, environment, eventually
from tests.web.serve import Browser, served

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}\u202e\x1b[31m"
pytestmark = pytest.mark.slow

READS = ("/", "/search?q=x", "/w/{key}", "/w/{key}/messages", "/w/{key}/t/evil", "/w/{key}/t/evil/children", "/changed")


@pytest.fixture(scope="module")
def key(stage: Stage, page: Browser) -> str:
    """A workspace in which everything that an agent may say is hostile."""
    stage.create("evil", PlannedChild("a", ("beta",), EVIL), child("b", "alpha"))
    stage.start()
    stage.end_turn("evil.a", f"{EVIL}\n\n[click](javascript:alert(3)) https://evil.example/ [[x]]\n")
    stage.create("plain")
    return page.key()


def test_half_open_connections_do_not_block_others_and_are_closed(page: Browser) -> None:
    heads = (b"", b"GET / HTTP/1.1\r\nHost:", _post(page.port))
    with contextlib.ExitStack() as held:
        half = [held.enter_context(socket.create_connection(("127.0.0.1", page.port), 60)) for _ in range(300)]
        for number, one in enumerate(half):
            with contextlib.suppress(OSError):
                one.sendall(heads[number % len(heads)])
        assert [page.get("/").status for _ in range(5)] == [200] * 5
        for one in half:
            with contextlib.suppress(ConnectionResetError):
                while one.recv(4096):
                    pass


def _post(port: int) -> bytes:
    """The head of a form of nobody, whose body never comes."""
    host = f"127.0.0.1:{port}"
    return (
        f"POST /leave HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 100\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    ).encode()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}.evil.example", ""]
)
@pytest.mark.parametrize("path", ["/", "/static/page.css", "/enter?token=x"])
def test_another_name_is_refused_before_anything_is_looked_at(page: Browser, host: str, path: str) -> None:
    answer = page.get(path, {"host": host.format(port=page.port)})
    assert answer.status == 421
    assert "mailboxd" not in answer.text


def test_loopback_host_names_are_accepted(page: Browser) -> None:
    assert page.get("/", {"host": f"LocalHost:{page.port}"}).status == 200


@pytest.mark.parametrize("path", READS)
def test_nothing_is_read_without_a_session(page: Browser, key: str, path: str) -> None:
    for cookie in (None, "mailboxd=", "mailboxd=guess", f"{page.cookie}x", f"{page.cookie}; mailboxd=other", "a=b"):
        answer = page.get(path.format(key=key), {"cookie": cookie})
        assert answer.status == 401
        assert "evil" not in answer.text.replace("mailboxd", "")
        assert "set-cookie" not in answer.headers


def test_a_link_is_good_once_and_the_cookie_is_kept_from_scripts_and_sites(page: Browser, stage: Stage) -> None:
    state = Path(stage.ws.root.parent)
    with served(stage.ws.root, {"XDG_STATE_HOME": str(state / "other")}) as other:
        assert other.get(other.link.removeprefix(other.origin)).status == 401  # `served` has used it
        assert other.get("/").status == 200
        assert other.get("/", {"cookie": page.cookie}).status == 401  # another user's session
        file = state / "other" / "mailboxd" / "web.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert other.cookie.partition("=")[2] not in file.read_text()
        new = _link(stage.ws.root, state / "other", other.port)
        cookie = replace(other, link=new, cookie="").enter().headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
        said = subprocess.run(
            [*MAILBOXD, "web", "--revoke"], cwd=stage.ws.root, capture_output=True, check=True, text=True,
            env=environment({"XDG_STATE_HOME": str(state / "other")}),
        )  # fmt: skip
        assert "ended" in said.stdout
        assert other.get("/").status == 401


def test_the_closed_page_prints_a_command_that_opens_it_whatever_its_port_is(stage: Stage, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with served(stage.ws.root, env) as other:  # on a free port: `web.port` is not set
        printed = re.search(r"<code>(mailboxd [^<]*)</code>", other.get("/", {"cookie": None}).text)
        assert printed
        done = subprocess.run(
            [*MAILBOXD, *shlex.split(printed[1])[1:]], cwd=tmp_path, env=environment(env), capture_output=True,
            check=False, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert replace(other, link=done.stdout.strip(), cookie="").enter().status == 303


def _link(root: Path, state: Path, port: int) -> str:
    done = subprocess.run(
        [*MAILBOXD, "web", "--link", "--port", str(port)], cwd=root, env=environment({"XDG_STATE_HOME": str(state)}),
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": None},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_changes_must_come_from_mailboxds_own_page(
    page: Browser, key: str, headers: dict[str, str | None], stage: Stage
) -> None:
    answer = page.ask("POST", f"/w/{key}/t/plain", "order=cancel", headers)
    assert answer.status == 403
    assert stage.phase("plain") != "cancelled"


def test_a_read_that_another_page_sends_is_refused(page: Browser) -> None:
    assert page.get("/", {"origin": "https://evil.example"}).status == 403


@pytest.mark.parametrize("token", ["", "0" * 64, "\udcff", "é"])
def test_a_form_carries_the_token_of_its_session(page: Browser, key: str, token: str, stage: Stage) -> None:
    fields = {"order": "cancel", "form": token.encode("utf-8", "replace").decode()}
    assert page.post(f"/w/{key}/t/plain", fields).status == 403
    assert page.post(f"/w/{key}/t/plain", {"order": "cancel"}, {"cookie": None}).status == 401
    assert stage.phase("plain") != "cancelled"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(page: Browser, method: str) -> None:
    assert page.ask(method, "/").status in (400, 405)


def test_reading_changes_nothing_and_writing_is_no_read(page: Browser, key: str, stage: Stage) -> None:
    assert page.get(f"/w/{key}/t/plain?order=cancel").status == 200
    assert page.post("/search", {"q": "x"}).status == 403
    assert stage.phase("plain") != "cancelled"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/page.css%00.js",
        "/static/",
        "/static/templates/base.html",
        "//evil.example/",
        "/w/../../etc/passwd",
        "/w/{key}/t/..%2f..%2fetc%2fpasswd",
        "/w/{key}/m/..%2f..%2fetc%2fpasswd",
        "/w/{key}/m/%00",
        "/w/nothing-00000000",
        "/w/{key}/t/evi",
        "/w/{key}/a/%0d%0aset-cookie:x=y",
        "/%0d%0aset-cookie:x=y",
        "/docs",
    ],
)
def test_a_path_leads_nowhere_else(page: Browser, key: str, path: str) -> None:
    answer = page.get(path.format(key=key))
    assert answer.status in (307, 400, 404)
    assert "root:" not in answer.text
    assert "set-cookie" not in answer.headers
    assert not answer.headers.get("location", "/").startswith("//")


def test_a_header_cannot_be_put_into_an_answer(page: Browser, key: str) -> None:
    answer = page.form(f"/w/{key}/t/plain", order="cancel\r\nset-cookie: x=y", note="\r\nx: y")
    assert answer.status == 409
    assert "set-cookie" not in answer.headers
    assert page.get("/?done=%0d%0aset-cookie:x=y").status == 200


def test_large_and_endless_bodies_are_refused(page: Browser, key: str) -> None:
    assert page.ask("POST", f"/w/{key}/t/plain", "x" * 300_000).status == 413
    assert (
        page.ask("POST", f"/w/{key}/t/plain", "", {"content-length": None, "transfer-encoding": "chunked"}).status
        == 413
    )
    assert page.form(f"/w/{key}/t/plain", order="cancel", reason="x" * 5_000).status == 409


def test_every_answer_carries_the_policy(page: Browser, key: str) -> None:
    for path in ("/", "/static/page.js", "/nothing", "/enter?token=x", f"/w/{key}/t/evil"):
        headers = page.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
    assert page.get("/", {"host": "evil.example"}).headers["content-security-policy"]


class _Markup(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append(dict(attrs).get("src"))


@pytest.mark.parametrize(
    "path", ["/", "/w/{key}", "/w/{key}?q=%3Cscript%3E", "/w/{key}/t/evil", "/w/{key}/t/evil.a", "/search?q=alert"]
)
def test_agents_text_is_never_markup(page: Browser, key: str, path: str) -> None:
    answer = page.get(path.format(key=key))
    assert answer.status == 200
    markup = _Markup()
    markup.feed(answer.text)
    assert markup.scripts == ["/static/page.js", "/static/palette.js"]
    assert not {"img", "iframe", "object", "embed", "style", "base", "meta http-equiv"} & markup.tags
    assert not [name for name, _ in markup.attributes if name.startswith("on") or name == "style"]
    links = [value or "" for name, value in markup.attributes if name in ("href", "action", "src")]
    assert all(re.match(r"/|#|\?|$", link) and not link.startswith("//") for link in links)
    assert "\u202e" not in answer.text
    assert "\x1b" not in answer.text
    assert "49" not in re.findall(r"`(\d+)", answer.text)


def test_the_hostile_words_are_shown_as_they_are(page: Browser, key: str) -> None:
    words = page.get(f"/w/{key}/t/evil.a").words
    assert "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}\\u202e\\x1b[31m" in words


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.2", "localhost", "example.org", ""])
def test_it_binds_to_loopback_and_nothing_else(stage: Stage, tmp_path: Path, address: str) -> None:
    done = subprocess.run(
        [*MAILBOXD, "web", "--port", "0", "--bind", address], cwd=stage.ws.root, capture_output=True, text=True,
        env=environment({"XDG_STATE_HOME": str(tmp_path)}), timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 78
    assert "not loopback" in done.stderr
    assert not done.stdout


def test_other_addresses_of_this_machine_are_closed(page: Browser) -> None:
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in others - {"127.0.0.1", "127.0.1.1"}:
        with socket.socket() as probe:
            probe.settimeout(5)
            assert probe.connect_ex((str(address), page.port)) != 0


def test_an_agents_shell_serves_no_page_and_gets_no_link(stage: Stage, tmp_path: Path) -> None:
    env = environment({"XDG_STATE_HOME": str(tmp_path), "OPENCLAW_SHELL": "exec"})
    for words in (["--port", "0"], ["--link", "--port", "1"]):
        done = subprocess.run([*MAILBOXD, "web", *words], cwd=stage.ws.root, env=env, capture_output=True, text=True)
        assert done.returncode == 1
        assert "enter?token" not in done.stdout


def test_a_port_that_is_taken_is_named(stage: Stage, page: Browser, tmp_path: Path) -> None:
    done = subprocess.run(
        [*MAILBOXD, "web", "--port", str(page.port)], cwd=stage.ws.root, capture_output=True, text=True,
        env=environment({"XDG_STATE_HOME": str(tmp_path)}), timeout=120,
    )  # fmt: skip
    assert done.returncode == 75
    assert "another program listens there" in done.stderr


def test_a_session_file_writable_by_others_is_not_used(stage: Stage, tmp_path: Path) -> None:
    with served(stage.ws.root, {"XDG_STATE_HOME": str(tmp_path)}) as browser:
        file = tmp_path / "mailboxd" / "web.json"
        file.chmod(0o666)
        assert browser.get("/").status == 401
        os.chmod(file, 0o600)
        eventually(lambda: browser.get("/").status == 200, 5)
        file.write_text("{")
        assert browser.get("/").status == 401
