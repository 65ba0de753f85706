"""`mailboxd connect`: what this workspace is connected with."""

from __future__ import annotations

from mailboxd.cli.groups import LazyGroup

connect_command = LazyGroup(
    "connect",
    {
        "Commands": {
            "plugin": "integration", "skill": "integration", "mcp": "mcp", "gateway": "gateway", "service": "daemon",
            "keys": "keys", "completion": "completion",
        }
    },
    help="Connect the workspace with OpenClaw, systemd, the keys of its peers, and your shell.",
)  # fmt: skip
