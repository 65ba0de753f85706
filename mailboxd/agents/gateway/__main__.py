"""`python -m mailboxd.agents.gateway agent ...`: one turn over the gateway."""

import sys

from mailboxd.agents.gateway.program import main

sys.exit(main())
