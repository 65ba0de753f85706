"""What a hostile host, a hostile server and a stranger can and cannot do. The test speaks as the host gamma."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from mailboxd.formats.keys import PrivateKey, signed
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.process.api import streams_of
from mailboxd.hub.wire.members import Invitation, nkey_seed
from mailboxd.hub.wire.receipts import Receipt, digest
from mailboxd.hub.wire.sealing import seal
from mailboxd.hub.wire.subjects import (
    API,
    FILES,
    JOBS,
    STREAM,
    FileSubject,
    files_of,
    guest,
    inbox_of,
    incoming,
    joining,
)
from tests.e2e.support import eventually, task
from tests.hub.farm import Farm, Host, connected, count

pytestmark = pytest.mark.slow

WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "The outcome."}}


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Alpha and beta work; gamma has joined, and what it does is up to the test."""
    hosts = {"alpha": {"main": WORK}, "beta": {"writer": WORK}, "gamma": {"spy": WORK}}
    farm = Farm(tmp_path_factory.mktemp("farm"), hosts)
    for name in ("alpha", "beta"):
        for agent in farm[name].agents.values():
            agent.start()
        farm[name].start_hub()
    eventually(lambda: farm["alpha"].is_connected_with("beta"), 30, farm.last_words)
    farm["gamma"].let_in()
    eventually(lambda: all("gamma" in farm[name].status()["hosts"] for name in ("alpha", "beta")), 30, farm.last_words)
    yield farm
    farm.close()


class Spy:
    """Gamma's connection, and the refusals that the server told it."""

    def __init__(self, client: Client, refusals: list[str]) -> None:
        self.client = client
        self.refusals = refusals

    async def sends(self, subject: str, raw: bytes, message_id: str = "msg_1") -> None:
        headers = {"Mailboxd-Id": message_id, "Nats-Msg-Id": secrets.token_hex(8)}
        await streams_of(self.client).publish(subject, raw, headers=headers)

    async def mails(self, to: Host, raw: bytes, message_id: str) -> None:
        """As a hub process does: sealed for the receiver."""
        sealed = seal(raw, {to.name: key_of(to).public})
        headers = {"Mailboxd-Id": message_id, "Mailboxd-Sha256": digest(raw), "Nats-Msg-Id": secrets.token_hex(8)}
        await streams_of(self.client).publish(f"mb.v2.{to.name}.mail.gamma", sealed, headers=headers)

    async def is_refused(self, action: Awaitable[object]) -> bool:
        before = len(self.refusals)
        try:
            await action
            await self.client.flush()
        except (NatsError, TimeoutError):
            pass
        for _ in range(100):
            if len(self.refusals) > before:
                return "permissions violation" in self.refusals[-1].lower()
            await asyncio.sleep(0.05)
        return False


def as_gamma(farm: Farm, does: Callable[[Spy], Awaitable[None]]) -> None:
    refusals: list[str] = []

    async def refused(error: Exception) -> None:
        refusals.append(str(error))

    async def run() -> None:
        client = await connected(farm["gamma"], error_cb=refused)
        try:
            await does(Spy(client, refusals))
        finally:
            await client.close()

    asyncio.run(run())


def key_of(host: Host) -> PrivateKey:
    return Membership.of(host.env).key()


def test_a_host_can_neither_send_as_another_nor_read_what_is_for_another(farm: Farm) -> None:
    async def does(spy: Spy) -> None:
        client, api = spy.client, API
        create = f"{api}.CONSUMER.CREATE.{STREAM}.gamma.{incoming('beta')}"
        forbidden = [
            client.publish("mb.v2.beta.mail.alpha", b"forged"),
            client.publish("mb.v2.beta.receipt.alpha", b"forged"),
            client.publish("mb.v2.card.alpha", b"forged"),
            client.publish(create, b"{}", reply="_INBOX.gamma.x"),
            client.publish(f"{api}.CONSUMER.MSG.NEXT.{STREAM}.beta", b"", reply="_INBOX.gamma.x"),
            client.publish(f"{api}.STREAM.INFO.{FILES}", b"", reply="_INBOX.gamma.x"),
            client.publish(f"{api}.DIRECT.GET.{FILES}.{files_of('beta', 'alpha')}", b"", reply="_INBOX.gamma.x"),
            client.publish(FileSubject("beta", "alpha", "msg_1", "0" * 64).piece(0), b"forged"),
            client.publish(f"{api}.STREAM.MSG.GET.{STREAM}", b'{"seq":1}', reply="_INBOX.gamma.x"),
            client.publish(f"{api}.DIRECT.GET.{STREAM}", b'{"seq":1}', reply="_INBOX.gamma.x"),
            client.publish(f"{api}.STREAM.DELETE.{STREAM}", b"", reply="_INBOX.gamma.x"),
            client.publish(f"{api}.STREAM.PURGE.{STREAM}", b"", reply="_INBOX.gamma.x"),
            client.publish(f"{api}.STREAM.UPDATE.{STREAM}", b"{}", reply="_INBOX.gamma.x"),
            client.publish(f"$JS.ACK.{STREAM}.beta.1.1.1.1.1", b"+ACK"),
            client.subscribe("mb.v2.beta.>"),
            client.subscribe("_INBOX.beta.>"),
            client.subscribe(">"),
        ]
        for action in forbidden:
            assert await spy.is_refused(action), spy.refusals

    as_gamma(farm, does)


def test_the_servers_own_answers_do_nothing_for_a_host(farm: Farm) -> None:
    """The server checks where a host publishes, not where it wants the answer, and would obey its own answers."""
    apis = (f"STREAM.PURGE.{STREAM}", f"STREAM.DELETE.{STREAM}", f"CONSUMER.DELETE.{STREAM}.beta")
    prefixes = (API, "$JS.API", "mb.founder")
    before = farm["alpha"].status()["trouble"], count(farm["alpha"], JOBS)

    async def does(spy: Spy) -> None:
        pull = f"{API}.CONSUMER.MSG.NEXT.{STREAM}.gamma"
        for reply in (f"{prefix}.{api}" for prefix in prefixes for api in apis):
            await spy.sends("mb.v2.gamma.mail.gamma", b"{}")
            for asked in (
                b'{"batch":1,"no_wait":true}',
                b'{"batch":1,"no_wait":true}',
            ):  # a message, and that there is none
                await spy.client.publish(pull, asked, reply=reply)
            await spy.client.publish("mb.v2.gamma.mail.gamma", b"", reply=reply)
        await spy.client.flush()
        info = await streams_of(spy.client).stream_info(STREAM)
        assert info.state.consumer_count == 3
        assert info.state.last_seq > info.state.first_seq > 0

    as_gamma(farm, does)
    assert (farm["alpha"].status()["trouble"], count(farm["alpha"], JOBS)) == before


def test_who_has_an_invitation_can_ask_to_be_let_in_and_do_nothing_else(farm: Farm) -> None:
    token = Invitation.parse(farm["alpha"].ordered("invite", "delta"))
    refusals: list[str] = []

    async def refused(error: Exception) -> None:
        refusals.append(str(error))

    async def run() -> None:
        client = await nats.connect(
            list(token.servers),
            tls=ssl.create_default_context(cadata=token.certificate),
            nkeys_seed_str=nkey_seed(PrivateKey.parse(token.secret)),
            inbox_prefix=inbox_of(guest("delta")),
            error_cb=refused,
            max_reconnect_attempts=50,
        )
        spy = Spy(client, refusals)
        for action in (
            client.publish("mb.v2.beta.mail.delta", b""),
            client.publish(joining("beta"), b""),
            client.publish("mb.v2.card.delta", b""),
            client.publish(f"{API}.STREAM.INFO.{STREAM}", b"", reply=f"{inbox_of(guest('delta'))}.x"),
            client.subscribe(joining()),
            client.subscribe("mb.v2.>"),
            client.subscribe(">"),
        ):
            assert await spy.is_refused(action), refusals
        await client.close()

    asyncio.run(run())
    farm["alpha"].ordered("revoke", "delta")


def test_nothing_is_stored_for_a_host_that_is_none(farm: Farm) -> None:
    async def does(spy: Spy) -> None:
        before = (await streams_of(spy.client).stream_info(STREAM)).state.messages
        for subject in (
            "mb.v2.ghost.mail.gamma",
            "mb.v2.ghost.receipt.gamma",
            FileSubject("ghost", "gamma", "m", "f").piece(0),
        ):
            with pytest.raises((NatsError, TimeoutError)):
                await streams_of(spy.client, 1.0).publish(subject, b"x")
        assert (await streams_of(spy.client).stream_info(STREAM)).state.messages == before

    as_gamma(farm, does)


@pytest.mark.parametrize("seed", [None, PrivateKey.new()], ids=["anonymous", "unknown key"])
def test_a_stranger_is_not_let_in(farm: Farm, seed: PrivateKey | None) -> None:
    member = Membership.of(farm["alpha"].env)

    async def connect() -> None:
        await nats.connect(
            list(member.settings().servers),
            tls=ssl.create_default_context(cadata=member.certificate()),
            allow_reconnect=False,
            connect_timeout=10,
            nkeys_seed_str=nkey_seed(seed) if seed else None,
        )

    with pytest.raises((NatsError, OSError)):
        asyncio.run(connect())


def test_another_server_is_not_trusted(farm: Farm, tmp_path: Path) -> None:
    other = Host(tmp_path / "delta", "delta", {})
    other.ordered("init", "delta", "--address", f"127.0.0.1:{farm.port}")
    member = Membership.of(other.env)

    async def connect() -> None:
        context = ssl.create_default_context(cadata=member.certificate())
        await nats.connect(f"tls://127.0.0.1:{farm.port}", tls=context, allow_reconnect=False)

    with pytest.raises((NatsError, OSError)):
        asyncio.run(connect())


def mail(sender: str, to: str, message_id: str) -> bytes:
    return task("job", sender=sender, to=to, message_id=message_id, subtask_id="x").encode()


@pytest.mark.parametrize(
    ("case", "reason"),
    {
        "unsealed": "it is not sealed: the mailboxd of its host is older",
        "newer": "it is sealed in a way that this mailboxd does not know",
        "for alpha": "it is sealed for alpha, not for beta",
        "earlier holder": "it is sealed for an earlier holder of the name beta",
        "damaged": "it was changed on its way",
    }.items(),
)
def test_what_is_not_sealed_for_this_host_is_refused_by_name(farm: Farm, case: str, reason: str) -> None:
    message_id, beta, keys = f"msg_{secrets.token_hex(8)}", farm["beta"], {"beta": key_of(farm["beta"]).public}
    raw, before = signed(mail("gamma.spy", "beta.writer", message_id), key_of(farm["gamma"])), len(beta.refused())
    sealed = {
        "unsealed": raw,
        "newer": b"mbx\x03" + seal(raw, keys)[4:],
        "for alpha": seal(raw, {"alpha": key_of(farm["alpha"]).public}),
        "earlier holder": seal(raw, {"beta": PrivateKey.new().public}),
        "damaged": seal(raw, keys)[:-1] + b"?",
    }

    async def does(spy: Spy) -> None:
        await spy.sends("mb.v2.beta.mail.gamma", sealed[case], message_id)

    as_gamma(farm, does)
    eventually(lambda: len(beta.refused()) > before, 20, farm.last_words)
    assert reason in beta.refused()[-1]


def changed(raw: bytes) -> bytes:
    return raw.replace(b"One line.", b"All your secrets.")


REFUSED: dict[str, tuple[str, str, Callable[[bytes, PrivateKey], bytes], str]] = {
    "forged sender": ("alpha.main", "beta.writer", lambda raw, key: signed(raw, key), "claims to be from alpha.main"),
    "unsigned": ("gamma.spy", "beta.writer", lambda raw, key: raw, "not signed by the host gamma"),
    "changed": ("gamma.spy", "beta.writer", lambda raw, key: changed(signed(raw, key)), "was changed after that"),
    "another's key": ("gamma.spy", "beta.writer", lambda raw, key: signed(raw, PrivateKey.new()), "not signed by the"),
    "for another": ("gamma.spy", "alpha.main", lambda raw, key: signed(raw, key), "addressed to alpha.main"),
    "no message": ("gamma.spy", "beta.writer", lambda raw, key: b"\xff\x00", "no message that can be read ("),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mail_that_its_host_did_not_sign_is_refused_and_recorded(farm: Farm, case: str) -> None:
    sender, to, made, reason = REFUSED[case]
    message_id, beta = f"msg_{secrets.token_hex(8)}", farm["beta"]
    before = len(beta.refused())
    raw = made(mail(sender, to, message_id), key_of(farm["gamma"]))

    async def does(spy: Spy) -> None:
        await spy.mails(farm["beta"], raw, message_id)

    as_gamma(farm, does)
    eventually(lambda: len(beta.refused()) > before, 20, farm.last_words)
    assert reason in beta.refused()[-1]
    assert message_id not in str(beta["writer"].mail()) + str(beta["writer"].unread())


def test_a_file_with_other_bytes_than_its_name_says_is_refused_with_its_message(farm: Farm) -> None:
    message_id, beta, name = f"msg_{secrets.token_hex(8)}", farm["beta"], f"{digest(b'good')}.md"
    raw = task("job", sender="gamma.spy", to="beta.writer", message_id=message_id, subtask_id="x", attachments=name)
    before = len(beta.refused())

    async def does(spy: Spy) -> None:
        file = FileSubject("beta", "gamma", message_id, name)
        evil = seal(b"evil", {"beta": key_of(beta).public})
        await streams_of(spy.client).publish(file.piece(0), evil, headers={"Mailboxd-Pieces": "1"})
        await spy.mails(beta, signed(raw.encode(), key_of(farm["gamma"])), message_id)

    as_gamma(farm, does)
    eventually(lambda: len(beta.refused()) > before, 20, farm.last_words)
    assert f"the attached {name} has other bytes than its name says" in beta.refused()[-1]
    assert not (beta["writer"].root / "mailbox" / "attachments" / name).exists()


def test_a_subject_of_no_known_kind_is_refused_by_the_server(farm: Farm) -> None:
    async def does(spy: Spy) -> None:
        assert await spy.is_refused(spy.sends("mb.v2.beta.mail.more.gamma", b"?"))

    as_gamma(farm, does)


def test_a_repeated_message_of_gamma_is_taken_once(farm: Farm) -> None:
    message_id, writer = f"msg_{secrets.token_hex(8)}", farm["beta"]["writer"]
    raw = signed(mail("gamma.spy", "beta.writer", message_id), key_of(farm["gamma"]))

    async def does(spy: Spy) -> None:
        for _ in range(5):
            await spy.mails(farm["beta"], raw, message_id)

    as_gamma(farm, does)
    eventually(lambda: [row for row in writer.mail() if row["message_id"] == message_id], 20, farm.last_words)
    as_gamma(farm, does)
    eventually(lambda: farm["beta"].status()["counts"]["repeats"] >= 5, 20, farm.last_words)
    assert [row["verdict"] for row in writer.mail() if row["message_id"] == message_id] == ["accepted"]


def test_what_claims_to_come_from_another_host_counts_only_with_its_signature(farm: Farm) -> None:
    """Another program of this user drops it into the inbox."""
    writer = farm["beta"]["writer"]
    writer.drop("forged.md", task("forged", sender="alpha.main", to="beta.writer"))
    eventually(lambda: writer.rejections().get("forged.md") == "unsigned", 20, farm.last_words)


def test_a_receipt_of_the_wrong_host_or_about_other_bytes_settles_nothing(farm: Farm) -> None:
    alpha, main = farm["alpha"], farm["alpha"]["main"]
    farm["beta"].stop_hub()
    plan = {"x": {"agent": "beta.writer", "description": "X", "expected_output": "One line."}}
    main.drop("go.md", task("waits", plan=plan))
    (name,) = eventually(lambda: alpha.spooled("sent"), 20, farm.last_words)
    (path,) = alpha.root.glob(f"ws/main/.mailboxd/hub/sent/{name}")
    raw, message_id = path.read_bytes(), name.removesuffix(".md")
    before = len(alpha.refused())

    async def does(spy: Spy) -> None:
        key = key_of(farm["gamma"])
        for sender, sha256 in (("gamma", digest(raw)), ("beta", digest(raw)), ("gamma", digest(b""))):
            receipt = Receipt(message_id, sha256, sender, "alpha", "2026-11-25T00:00:00.000Z").signed(key.sign)
            await spy.sends("mb.v2.alpha.receipt.gamma", receipt.to_bytes())
        await spy.sends("mb.v2.alpha.receipt.gamma", b"{}")

    as_gamma(farm, does)
    eventually(lambda: len(alpha.refused()) == before + 4, 20, farm.last_words)
    assert alpha.spooled("sent") == [name]
    farm["beta"].start_hub()
    main.until("waits")


def test_a_card_that_its_host_did_not_sign_or_that_is_old_is_not_heard(farm: Farm) -> None:
    alpha = farm["alpha"]

    async def does(spy: Spy) -> None:
        await spy.client.publish("mb.v2.card.gamma", b'{"card": "{}", "signature": "x"}')
        await spy.client.publish("mb.v2.card.gamma", b"[" * 10_000)
        await spy.client.flush()

    as_gamma(farm, does)
    assert not alpha.status()["hosts"]["gamma"]["at"]
    assert not alpha.status()["trouble"]


def test_what_a_revoked_host_left_is_named_exported_and_removed_and_it_is_cut_off(farm: Farm, tmp_path: Path) -> None:
    """The last test: gamma is gone after it."""
    alpha, beta, folder = farm["alpha"], farm["beta"], tmp_path / "left"
    beta.stop_hub()
    cut: list[str] = []
    sent, removed = [f"msg_{secrets.token_hex(8)}" for _ in range(2)], list[str]()

    async def run() -> None:
        async def closed() -> None:
            cut.append("closed")

        async def quiet(_: Exception) -> None: ...

        client = await connected(farm["gamma"], disconnected_cb=closed, error_cb=quiet)
        for message_id in sent:
            await Spy(client, []).mails(beta, b"work", message_id)
        await streams_of(client).publish(FileSubject("beta", "gamma", sent[0], "f").piece(0), b"part")
        said = await asyncio.to_thread(alpha.ordered, "revoke", "gamma", "--export", str(folder))
        for line in ("removed files from it: ", f"exported to {folder}"):
            assert line in said
        removed.extend(re.findall(r"removed mail from it: (\d+) beta", said))
        for _ in range(100):
            if cut:
                break
            await asyncio.sleep(0.05)
        assert cut, "its connection goes on"

    asyncio.run(run())
    kept = [json.loads(path.read_text()) for path in (folder / "mail-from").glob("*.json")]
    ids = [one["headers"]["Mailboxd-Id"] for one in kept if one["subject"] == "mb.v2.beta.mail.gamma"]
    assert set(sent) <= set(ids), "what it sent is kept, whatever other tests of it have left there"
    assert removed == [str(len(ids))]
    assert count(alpha, STREAM) == 0
    with pytest.raises((NatsError, OSError)):
        asyncio.run(connected(farm["gamma"], allow_reconnect=False))
    beta.start_hub()
    eventually(lambda: "gamma" not in beta.status()["hosts"], 30, farm.last_words)
