"""Turns over OpenClaw's gateway itself: one WebSocket instead of one Node process (`openclaw.transport: gateway`).

`python -m mailboxd.agents.gateway agent ...` takes the arguments of `openclaw agent`, prints the same JSON, ends with
the same exit status and aborts the turn on SIGTERM. The daemon therefore treats it as any other call
(docs/decisions/0005).

    pairing     the file with the device's key and token
    client      the WebSocket, the protocol's frames, and a connection that is authenticated
    program     one turn: the command line and its exit status
    transport   the daemon's side: which program runs which turn, and which gateways may be connected to
"""
