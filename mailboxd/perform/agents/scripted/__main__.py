"""`python -m mailboxd.perform.agents.scripted`, the same as the console script."""

from mailboxd.perform.agents.scripted import main

main()
