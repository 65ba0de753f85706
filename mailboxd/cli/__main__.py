"""`python -m mailboxd.cli`: how mailboxd starts itself, whatever is in PATH."""

from mailboxd.cli import main

main()
