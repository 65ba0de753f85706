#!/bin/sh
# Runs a command of mailboxd in the workspace, by default the daemon. The first time it creates what is missing there:
# MAILBOXD_AGENT names the agent whose workspace it is.
set -eu
workspace="${MAILBOXD_WORKSPACE:?names the workspace of the agent}"

if [ ! -e "$workspace/.mailboxd/config.yaml" ]; then
    mailboxd init "$workspace" --agent "${MAILBOXD_AGENT:?names the agent whose workspace $workspace is}"
fi
exec mailboxd -w "$workspace" "$@"
