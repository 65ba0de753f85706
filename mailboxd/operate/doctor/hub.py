"""Checks of this host's part in the hub: the process, the server, the other hosts, and mail that waits."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress

from mailboxd.core.sanitize import one_line
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import POOL
from mailboxd.errors import UnavailableError
from mailboxd.host.pip_extras import is_installed, to_add
from mailboxd.hub.client.ask import probed
from mailboxd.hub.client.report import SILENT, hub_report, not_listed
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.server import CLUSTER, ServerFiles
from mailboxd.hub.files.view import older
from mailboxd.hub.wire.presence import MOST_SKEW
from mailboxd.operate.doctor.facts import CheckResult, Facts, HubFacts, edit, error, note, ok, warning

_LONG, _DAY = 3_600.0, 86_400.0
"""Seconds without a receipt, and since a host was set back, that are worth a word."""


def hub(facts: Facts, found: HubFacts) -> Iterator[CheckResult]:
    results = [*_process(found), *_server(found), *_hosts(found, facts), *_mail(found, facts)]
    yield from results
    if not any(result.level in ("warning", "error") for result in results):
        yield ok(
            "hub", f"this host is {found.host} in the hub, with {', '.join(sorted(found.hosts)) or 'no other host'}"
        )


def _process(found: HubFacts) -> Iterator[CheckResult]:
    if not found.extra:
        yield error("hub-extra", "this host belongs to a hub, and the packages for it are not installed", to_add("hub"))
    elif found.trouble:
        yield error(
            "hub", found.trouble, "mailboxd hub run" if "not running" in found.trouble else "mailboxd hub status"
        )
    for where, at in sorted(found.copies.items()):
        text = f"another process asked to run as {found.host}: at {one_line(where)}, last at {at}; it was refused"
        yield warning("hub-copy", text, "mailboxd hub leave  # there")
    for host, at in sorted(found.again.items()):
        text = f"a second host asked at {at} to be let in with the token that let {host} in; the second was refused"
        yield warning("hub-token", text, f"mailboxd hub revoke {host}  # only if the first was the wrong one")
    if not found.send and not found.accept:
        text = f"{found.host} neither gives work to agents of other hosts nor takes any from them"
        yield note("hub-nobody", text, edit(found.settings, "send and accept"))
    for role, agent in sorted(found.unserved.items()):
        text = f"hub.yaml has {agent} serve {POOL}{role}, and no workspace here is that of {agent}: it takes no job"
        yield error("hub-pool", text, edit(found.settings, "pools"))
    for why in found.unlisted.values():
        yield error("hub-pool", f"it takes no job of a pool that hub.yaml names: {why}", edit(found.settings, "pools"))
    for role, why in sorted(found.pool_troubles.items()):
        yield warning("hub-pool", f"{POOL}{role}: {one_line(why)}", "mailboxd hub status")


def _server(found: HubFacts) -> Iterator[CheckResult]:
    if found.server is not None and not found.syncs:
        text = f"{found.server} lacks `sync_interval: always`: a power cut would lose what the server has acknowledged"
        yield error("hub-sync", text, edit(found.server, "in jetstream { }: sync_interval: always"))
    if found.open_routes:
        text = "cluster.conf has no `tls`: whoever sees the network between the servers reads all mail"
        yield note("hub-tls", text, edit(f"{found.folder}/server/cluster.conf", "in cluster { }: tls { }"))
    probe = found.probe
    if probe is None:
        return
    again = "mailboxd hub run  # on the host that founded the hub: it writes the server's configuration"
    if not probe["own"]:
        text = f"the server does not let {found.host} publish under its own name: its configuration is old, or not ours"
        yield error("hub-permissions", text, again)
    if probe["foreign"]:
        text = "the server lets this host publish under another's name: its permissions were changed"
        yield error("hub-permissions", text, again)
    if found.replicas is not None and probe["replicas"] != found.replicas:
        text = f"{probe['replicas']} servers hold each message, and hub.yaml says {found.replicas}"
        yield warning("hub-replicas", text, "mailboxd hub status")
    if probe["behind"]:
        text = f"these servers have not all messages: {', '.join(map(one_line, probe['behind']))}"
        yield warning("hub-replicas", text, "mailboxd hub status")
    for subject, at in sorted(found.foreign.items()):
        text = f"something came on {one_line(subject)} that its host did not sign, last at {at}"
        yield warning("hub-foreign", text, "mailboxd hub status")


def _hosts(found: HubFacts, facts: Facts) -> Iterator[CheckResult]:
    if found.fork:
        yield error("hub-fork", found.fork, "mailboxd hub status")
    for host, at in sorted(found.flooding.items()):
        text = f"the host {one_line(host)} said so much that it was dropped unread, last at {at}"
        yield warning("hub-flood", text, f"mailboxd hub revoke {one_line(host)}  # on the host that founded the hub")
    for host, state in sorted(found.hosts.items()):
        if state.is_older:
            yield error("hub-older", older(host), "mailboxd hub status")
        elif not found.trouble and (not state.at or to_epoch(facts.now) - to_epoch(state.at) > SILENT):
            since = f"since {state.at}" if state.at else "yet"
            yield warning("hub-silent", f"nothing has been heard from the host {host} {since}", "mailboxd hub status")
        if abs(state.skew) > MOST_SKEW:
            text = f"the clock of the host {host} differs from this one by {state.skew:+.1f} s"
            yield warning("hub-clock", text, "timedatectl")
        if state.set_back_at and to_epoch(facts.now) - to_epoch(state.set_back_at) < _DAY:
            text = (
                f"the host {host} had forgotten what it did at {state.set_back_at}: restored from a backup, or copied"
            )
            yield warning("hub-set-back", text, "mailboxd fleet")
    for peer in facts.peers or ():
        if peer.id.lower().partition(".")[0] in found.hosts:
            text = f"OpenClaw's agent {peer.id} has the name of an agent on another host, and comes first"
            yield warning("hub-clash", text, "rename it, or the host")


def _mail(found: HubFacts, facts: Facts) -> Iterator[CheckResult]:
    for agent, since in sorted(found.waiting.items()):
        if to_epoch(facts.now) - to_epoch(since) > _LONG:
            text = f"mail of {agent} has waited for a receipt since {since}"
            yield warning("hub-waiting", text, "mailboxd hub status")
    if found.stopped:
        text = f"{found.stopped} for {found.host} the server no longer delivers: the hub process ended each time"
        yield warning("hub-stopped", text, "mailboxd hub status")
    if found.refused:
        folder = shlex.quote(f"{found.folder}/refused")
        yield note("hub-refused", f"mail of other hosts was refused: {found.refused}", f"ls {folder}")


def probe_hub(environ: Mapping[str, str]) -> HubFacts | None:
    """None if this host belongs to no hub. Raises ConfigError, WorldError."""
    membership = Membership.of(environ)
    if not membership.exists():
        return None
    settings, report = membership.settings(), hub_report(membership)
    files = ServerFiles.of(membership) if settings.listen else None
    cluster = files.folder / CLUSTER if files else None
    probe = None
    with suppress(UnavailableError):
        probe = probed(membership) if not report.trouble else None
    return HubFacts(
        host=settings.host,
        folder=str(membership.folder),
        settings=str(membership.folder / "hub.yaml"),
        trouble=report.trouble,
        extra=is_installed("hub"),
        server=str(files.config) if files else None,
        syncs=files is None or "sync_interval: always" in files.config.read_text(),
        send=settings.send,
        accept=settings.accept,
        hosts=report.hosts,
        waiting=report.waiting,
        stopped=report.stopped,
        unserved={
            role: pool.agent
            for role, pool in settings.pools.items()
            if report.agents and pool.agent.lower() not in report.agents
        },
        unlisted={role: not_listed(settings.host, role, settings.pools) for role in report.unlisted},
        pool_troubles=report.pool_troubles,
        refused=sum(1 for _ in membership.folder.glob("refused/*.json")),
        foreign=report.facts.get("foreign", {}),
        flooding=report.facts.get("flooding", {}),
        fork=report.facts.get("fork", ""),
        copies=report.facts.get("copies", {}),
        again={host: one["refused"] for host, one in report.facts["invited"].items() if one["refused"]},
        probe=probe,
        replicas=settings.replicas if settings.listen else None,
        open_routes=cluster is not None and cluster.exists() and "tls" not in cluster.read_text(),
    )
