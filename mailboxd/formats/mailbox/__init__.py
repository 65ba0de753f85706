"""The workspace's files: untrusted directories that anybody may write to, and what mailboxd does in them.

Everything is relative to directory descriptors opened without following links, so that no directory can be swapped
for a link between a check and its use. Every move is a rename that refuses to replace. Every function that changes
something may be called again after a crash at any point, and then finishes the work.

    layout      paths of a workspace, file names; finding and creating a workspace
    lock        one daemon per workspace
    files       the system calls that the others are made of
    inbox       what is in the inbox, and which of it is ready
    maildir     deliver, archive, reject: no byte lost, nothing replaced; the outbox
    task_files  tasks/*/task.md, which people and agents edit while mailboxd renders it
    watcher     wakes the loop; an event only says "look"
"""
