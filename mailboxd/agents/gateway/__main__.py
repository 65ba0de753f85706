"""`python -m mailboxd.agents.gateway PAIRING DESCRIPTOR`: the program that carries turns over the gateway."""

import sys

from mailboxd.agents.gateway.program import main

main(sys.argv[1:])
