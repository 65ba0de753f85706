"""The database made again from mailbox/ and tasks/ alone."""
