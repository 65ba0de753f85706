"""The operator's time zone, without reading all of the configuration: most commands need nothing else of it."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import tzinfo
from pathlib import Path

from mailboxd.errors import MailboxdError
from mailboxd.host import zone

_PLAIN = re.compile(rb"zone:[ ]+([\"']?)([A-Za-z0-9_+/-]*)\1[ ]*")
"""A line that names the zone."""


def zone_of(config: Path) -> str:
    """The name of the zone in this config.yaml; empty = the machine's, also where the file cannot be read."""
    with suppress(OSError):
        if not config.is_file():  # a FIFO in its place must not hold up the command
            return ""
        lines = [line for line in config.read_bytes().splitlines() if line.startswith(b"zone")]
        if not lines:
            return ""
        if len(lines) == 1 and (plain := _PLAIN.fullmatch(lines[0])):
            return plain[2].decode()
    from mailboxd.formats.config import load

    with suppress(MailboxdError):
        return load(config).zone if config.exists() else ""
    return ""


def place_of(config: Path) -> tzinfo:
    """The zone itself; the machine's where the name is unknown."""
    return called(zone_of(config))


def called(name: str) -> tzinfo:
    """The zone of this name; the machine's where it is unknown: it was known when it was written down."""
    try:
        return zone.named(name)
    except ValueError:
        return zone.named("")
