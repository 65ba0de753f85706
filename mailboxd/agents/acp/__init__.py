"""A turn taken by a harness that speaks ACP (`runtime: acp`): a coding agent such as Codex, Gemini or Claude.

The daemon notices nothing: `python -m mailboxd.agents.acp --order FILE` is a call like every other, prints what
`openclaw agent --json` prints and ends with the exit status that it ends with, so that one judge reads both
(docs/decisions/0007). It starts the harness, speaks with it, and sees to it that nothing of it is left.

    order        what the daemon wants: one file in the call's directory
    notes        the files by which this program and the daemon talk while the turn runs
    wire         frames over the pipes of the harness, and their journal
    harness      the process: started in a session of its own, ended with everything that it started
    permissions  what may be done without asking a person (pure)
    parking      a question that waits for a person
    hearing      what the harness says while it works (pure)
    conversation initialize, a session, one prompt, cancel
    acpx         the same turn through the program `acpx`
    changes      which files changed, and how
    ending       how a turn ended, in the words of `openclaw agent --json` (pure)
    program      the command line and its exit status
    remains      what a program that was killed has left behind
    hello        whether a harness can be had at all (`mailboxd doctor`)
    transport    the daemon's side: which program runs which turn
"""
