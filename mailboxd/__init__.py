"""mailboxd: a per-agent daemon that turns an OpenClaw agent's mailbox into finished, audited work.

Files come in, a pure function decides, one transaction records, effects happen afterwards. docs/architecture.md says
what to read in which order.
"""
