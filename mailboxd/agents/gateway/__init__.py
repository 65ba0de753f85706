"""A turn over OpenClaw's gateway itself: one WebSocket instead of one Node process (`openclaw.transport: gateway`).

The daemon notices nothing: `python -m mailboxd.agents.gateway agent ...` takes the arguments of `openclaw agent`,
prints the JSON that it prints, ends with the exit status that it ends with, and aborts the turn on SIGTERM. So the
call's directory, adoption after a crash, the outcome and the ledger are judged by the same code (docs/decisions/0005).

    address     which gateways may be spoken to: this machine in the clear, others over TLS only
    pairing     the file that holds the device's key and token, and what the gateway knows it by
    connection  one WebSocket, in one thread, that a signal can wake
    frames      the protocol's frames, as data (pure)
    client      a connection that has introduced itself
    turn        one turn on such a connection
    program     the command line and its exit status
    enrolment   becoming a device of the gateway, and asking how one stands with it
    transport   the daemon's side: which program runs which turn
"""
