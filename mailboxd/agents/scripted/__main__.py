"""`python -m mailboxd.agents.scripted`, the same as the console script."""

from mailboxd.agents.scripted import main

main()
