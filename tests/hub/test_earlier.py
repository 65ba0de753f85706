"""What the first version of the hub left on a host is read as it was meant: files of commit 74b755e."""

from __future__ import annotations

import shutil
from pathlib import Path

from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.spool import Holder
from mailboxd.hub.process.jobs_held import Job
from mailboxd.hub.wire.receipts import Receipt, ReceiptStage

EARLIER = Path(__file__).parent / "earlier"


def test_the_settings_and_the_list_of_hosts_go_on_and_every_host_may_serve_every_pool(tmp_path: Path) -> None:
    folder = tmp_path / "mailboxd" / "hub"
    folder.mkdir(parents=True, mode=0o700)
    for name in ("hub.yaml", "hosts.json"):
        shutil.copy(EARLIER / name, folder / name)
        (folder / name).chmod(0o600)
    member = Membership.of({"XDG_STATE_HOME": str(tmp_path)})
    settings = member.settings()
    assert (settings.host, settings.pools["reviewer"].slots, settings.accept) == ("alpha", 2, ("beta.*",))
    members = member.members(settings.founder)
    assert members.hosts.keys() == {"alpha", "beta"}
    assert members.serving("reviewer") == ("alpha", "beta")


def test_jobs_that_were_held_and_receipts_that_had_come_go_on() -> None:
    assert Job.read((EARLIER / "jobs.json").read_bytes()) == {"msg_1": Job("reviewer", "rev", "beta")}
    taken, refused = (Receipt.parse((EARLIER / f"{name}.json").read_bytes()) for name in ("receipt", "refused"))
    assert taken is not None
    assert refused is not None
    assert (taken.stage, taken.is_final, refused.stage, refused.refused) == (
        ReceiptStage.TAKEN, True, ReceiptStage.REFUSED, "no such agent",
    )  # fmt: skip
    assert Holder.parse((EARLIER / "holder.json").read_bytes()) == Holder("beta", "2026-11-25T00:00:00.000Z", "att_1")
