"""What is on the disk of one host: settings, members, the server's configuration, the spool, and what daemons see."""
