"""Agents on other hosts: mail through NATS JetStream.

A message is put into a spool directory of the workspace by the daemon, carried to another host by the hub process
(`mailboxd hub run`), delivered there into the inbox, and leaves the spool only when the receiver's signed receipt is
back. Reading order: `protocol` (the wire, pure), `spool` (between daemon and hub process), `membership` (who belongs
to the hub), `process` (the hub process: its state, sending and receiving), `claims` (pools, pure), `pools`
(their jobs), `serving` (running it).
"""
