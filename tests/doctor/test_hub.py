"""Doctor's checks of this host's part in the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mailboxd.host.pip_extras import to_add
from mailboxd.hub.wire.presence import HostSigns
from mailboxd.operate.doctor.facts import HubFacts
from mailboxd.operate.doctor.hub import hub, probe_hub
from mailboxd.perform.agents.openclaw import Peer
from tests.doctor.facts import ALPHA, HEALTHY, but
from tests.hub.farm import Host

NOW, LONG_AGO = HEALTHY.now, "2026-11-20T00:00:00.000Z"
HEARD = {"beta": HostSigns(at=NOW)}
PROBE = {"own": True, "foreign": False, "replicas": 1, "behind": []}
FINE: dict[str, Any] = {"send": ("*",), "accept": ("*",), "hosts": HEARD}


def found(**said: Any) -> list[tuple[str, str, str]]:
    peers = said.pop("peers", (ALPHA,))
    facts = HubFacts("alpha", "/state/hub", "/state/hub/hub.yaml", **{**FINE, **said})
    return [(finding.id, finding.level, " ".join(finding.fixes)) for finding in hub(but(peers=peers), facts)]


@pytest.mark.parametrize(
    ("said", "slug", "level", "fix"),
    [
        ({}, "hub", "ok", ""),
        ({"trouble": "the hub process is not running"}, "hub", "error", "mailboxd hub run"),
        ({"trouble": "the server does not answer"}, "hub", "error", "mailboxd hub status"),
        ({"extra": False}, "hub-extra", "error", to_add("hub")),
        ({"server": "/s/nats.conf", "syncs": False}, "hub-sync", "error", "sync_interval: always"),
        ({"send": (), "accept": ()}, "hub-nobody", "note", "send and accept"),
        ({"hosts": {"beta": HostSigns()}}, "hub-silent", "warning", "mailboxd hub status"),
        ({"hosts": {"beta": HostSigns(at=LONG_AGO)}}, "hub-silent", "warning", "mailboxd hub status"),
        ({"hosts": {"beta": HostSigns(at=NOW, skew=-3.0)}}, "hub-clock", "warning", "timedatectl"),
        ({"peers": (Peer("Beta.writer", "B", "/b", False),)}, "hub-clash", "warning", "rename"),
        ({"waiting": {"main": LONG_AGO}}, "hub-waiting", "warning", "mailboxd hub status"),
        ({"stopped": 2}, "hub-stopped", "warning", "mailboxd hub status"),
        ({"unserved": {"reviewer": "rev"}}, "hub-pool", "error", "pools"),
        ({"unlisted": {"reviewer": "not listed"}}, "hub-pool", "error", "pools"),
        ({"pool_troubles": {"reviewer": "nobody"}}, "hub-pool", "warning", "mailboxd hub status"),
        ({"refused": 2}, "hub-refused", "note", "ls /state/hub/refused"),
        ({"hosts": {"beta": HostSigns(at=NOW, set_back_at=NOW)}}, "hub-set-back", "warning", "mailboxd fleet"),
        ({"probe": PROBE, "foreign": {"mb.v2.card.beta": NOW}}, "hub-foreign", "warning", "mailboxd hub status"),
        ({"probe": {**PROBE, "own": False}}, "hub-permissions", "error", "mailboxd hub run"),
        ({"probe": {**PROBE, "foreign": True}}, "hub-permissions", "error", "mailboxd hub run"),
        ({"probe": PROBE, "replicas": 3}, "hub-replicas", "warning", "mailboxd hub status"),
        ({"probe": {**PROBE, "behind": ["n2"]}}, "hub-replicas", "warning", "mailboxd hub status"),
        ({"flooding": {"beta": NOW}}, "hub-flood", "warning", "mailboxd hub revoke beta"),
        ({"fork": "other lists"}, "hub-fork", "error", "mailboxd hub status"),
        ({"copies": {"vm:/else": NOW}}, "hub-copy", "warning", "mailboxd hub leave"),
        ({"again": {"beta": NOW}}, "hub-token", "warning", "mailboxd hub revoke beta"),
        ({"open_routes": True}, "hub-tls", "note", "/state/hub/server/cluster.conf"),
    ],
)
def test_each_thing_that_can_be_wrong(said: dict[str, Any], slug: str, level: str, fix: str) -> None:
    (result,) = [one for one in found(**said) if one[0] == slug]
    assert result[1] == level
    assert fix in result[2]


def test_what_is_as_it_should_be_is_no_trouble() -> None:
    assert [one[0] for one in found(probe=PROBE, replicas=1)] == ["hub"]
    assert [one[0] for one in found(hosts={"beta": HostSigns(at=NOW, set_back_at=LONG_AGO)})] == ["hub"]


def test_mail_that_has_just_been_sent_is_no_trouble() -> None:
    assert [one[0] for one in found(waiting={"main": NOW})] == ["hub"]


@pytest.mark.slow
def test_the_probe_reads_what_is_there(tmp_path: Path) -> None:
    host = Host(tmp_path / "alpha", "alpha", {})
    assert probe_hub(host.env) is None
    host.ordered("init", "alpha", "--address", "127.0.0.1:4222", "--send", "beta.*")
    seen = probe_hub(host.env)
    assert seen is not None
    assert (seen.host, seen.send, seen.accept, seen.syncs, seen.hosts) == ("alpha", ("beta.*",), (), True, {})
    settings = host.folder / "hub.yaml"
    settings.write_text(settings.read_text().replace("pools: {}", "pools: {reviewer: {agent: rev}}"))
    for agents, unserved in ((), {}), (("operator",), {"reviewer": "rev"}), (("rev",), {}):
        status = host.folder / "status.json"
        status.touch(0o600)
        status.write_text(json.dumps({"agents": {name: {"since": ""} for name in agents}}))
        seen = probe_hub(host.env)
        assert seen is not None
        assert seen.unserved == unserved
    assert seen.trouble == "the hub process is not running: mailboxd hub run"
    config = host.folder / "server" / "nats.conf"
    config.write_text(config.read_text().replace("sync_interval: always", ""))
    changed = probe_hub(host.env)
    assert changed is not None
    assert not changed.syncs
