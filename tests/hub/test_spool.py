"""The spool between a daemon and the hub process: everything may be repeated."""

from __future__ import annotations

from pathlib import Path

from mailboxd.hub.files.spool import HOLDERS, NEW, RECEIPTS, SENT, Spool
from mailboxd.hub.wire.receipts import Receipt
from tests.cli.stage import make


def test_whatever_was_done_before_a_crash_can_be_done_again(tmp_path: Path) -> None:
    spool = Spool(make(tmp_path / "ws").ws)
    receipt = Receipt("msg_1", "0" * 64, "beta", "alpha", "2026-11-21T12:00:00.000Z")
    for _ in range(2):
        spool.create()
        spool.attach("msg_1", "a.md", [b"A ", b"file."])
        spool.put("msg_1", b"mail")
    assert (spool.names(NEW), spool.attached("msg_1")) == (["msg_1"], {"a.md": 7})
    for _ in range(2):
        spool.stored("msg_1")
        spool.put("msg_1", b"mail")
        spool.taken(receipt, "att_1")
    assert [spool.names(place) for place in (NEW, SENT, HOLDERS)] == [[], ["msg_1"], ["msg_1"]]
    for _ in range(2):
        spool.settle(receipt)
        spool.put("msg_1", b"mail")
    assert spool.receipt("msg_1") == receipt
    spool.recorded("msg_1")
    assert not any(spool.names(place) for place in (NEW, SENT, RECEIPTS, HOLDERS))
    assert spool.attached("msg_1") == {}


def test_a_daemon_that_starts_before_the_hub_process_saw_its_workspace_uses_its_spool(tmp_path: Path) -> None:
    spool = Spool(make(tmp_path / "ws").ws)
    assert not any(spool.names(place) for place in (NEW, SENT, RECEIPTS, HOLDERS))
    spool.attach("msg_1", "a.md", [b"A file."])
    spool.put("msg_1", b"mail")
    assert spool.names(NEW) == ["msg_1"]
    assert spool.message("msg_1") == b"mail"
