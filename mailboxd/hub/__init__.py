"""Agents on other hosts: mail, jobs and files through NATS JetStream.

A message is put into a spool directory of the workspace by the daemon, carried to another host by the hub process
(`mailboxd hub run`), delivered there into the inbox, and leaves the spool only when the receiver's signed receipt is
back.

    wire      what crosses: subjects, receipts, cards, the list of members, and the rules of mail and of pools (pure)
    files     what is on this host's disk: settings, keys, the spool, what daemons see, the server's configuration
    client    what commands and the page ask the hub process
    process   the hub process, the only part that speaks NATS
"""
