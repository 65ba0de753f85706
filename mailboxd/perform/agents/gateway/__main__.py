"""`python -m mailboxd.perform.agents.gateway PAIRING DESCRIPTOR`: the program that carries turns over the gateway."""

import sys

from mailboxd.perform.agents.gateway.program import main

main(sys.argv[1:])
