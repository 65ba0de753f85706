"""The other hosts of the hub, for who looks at everything. Where there is no hub, nothing of it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mailboxd.hub.files.view import has_hub

if TYPE_CHECKING:
    from mailboxd.core.explain.overview_details import HostRow


def other_hosts(environ: Mapping[str, str], now: str) -> list[HostRow]:
    """The other hosts, as this one knows them; none without a hub. Raises ConfigError, WorldError."""
    if not has_hub(environ):
        return []
    from mailboxd.hub.client.report import hub_report
    from mailboxd.hub.files.membership import Membership

    return hub_report(Membership.of(environ)).rows(now)
