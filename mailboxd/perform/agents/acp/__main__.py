"""`python -m mailboxd.perform.agents.acp --order FILE`: one turn of a harness."""

import sys

from mailboxd.perform.agents.acp.program import main

sys.exit(main())
