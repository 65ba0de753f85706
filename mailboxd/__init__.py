"""mailboxd: a per-agent daemon that turns an OpenClaw agent's mailbox into finished, audited work.

Files come in, a pure function decides, one transaction records, effects happen after. To understand it, read in this
order (about an hour; CONTRIBUTING.md has the times):

1. `core.lifecycle`   the life of a task, as two tables: the whole product on two screens
2. `core.decide`      what one input does to one task; `core.attempts` and `core.planning` are its larger branches
3. `engine`           load -> decide -> record, in one transaction; the fixed point over neighbours
4. `store.projection` from events to tables; `store.log` proves that they agree
5. `effects.relay`    performs what was ordered, and what a crash in the middle of it may lead to
6. `daemon.loop`      the loop that waits, and calls all of the above
7. `inbox.intake`, `taskfiles.taskmd`: what a message, and what an edit of a task.md, means
"""
