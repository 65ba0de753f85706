"""The workspace's file system: untrusted directories that anybody may write to, and what mailboxd does in them.

Everything is done relative to directory descriptors that were opened without following links, so that nobody can
swap a directory for a link between a look and an act. Every move is a rename that refuses to replace. Every function
that changes something may be called again after a crash at any point and then finishes what it began.

    layout      where everything is; finding and creating a workspace
    lock        one daemon per workspace
    files       the few system calls the others are made of
    settled     reading a file only when nobody is still writing it
    names       which names are temporary, how a clash is named
    inbox       what lies in the inbox, and which of it is ready
    mail        delivering, archiving, rejecting: no byte lost, nothing replaced
    taskfiles   tasks/*/task.md, which people and agents edit while we render it
    watcher     says "look", never what
"""
