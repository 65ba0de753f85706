"""Turns over OpenClaw's gateway itself: one program with one WebSocket instead of a Node process for each turn.

The program runs beside the daemon and outlives it. Each turn is a call with a directory, as any other
(docs/decisions/0005).

    pairing     the file with the device's key and token
    client      the WebSocket, the protocol's frames, and a connection that is authenticated
    transport   the daemon's side: hands turns over, finds them again, and says which gateways may be connected to
    program     the program: any number of turns on one connection
"""
