"""Turns by a harness that speaks ACP (`runtime: acp`): a coding agent such as Codex, Gemini or Claude.

`python -m mailboxd.perform.agents.acp --order FILE` is a call like any other: it prints what `openclaw agent --json`
prints and ends with the same exit status (docs/decisions/0007). It starts the harness, runs the turn, and leaves no
process of the harness behind.

    turn_files       the files through which this program and the daemon communicate
    harness          the harness's process, and the frames over its pipes
    permissions      what needs no approval, and the questions that wait for an operator
    session_updates  what the harness reports while it works, and how the turn ended
    conversation     initialize, a session, one prompt, cancel; whether a harness can be used (needs the extra `acp`)
    program          the command line and its exit status; which files changed
    transport        the daemon's side: which program runs which turn, and what came of it
"""
