"""`python -m mailboxd.agents.acp --order FILE`: one turn of a harness."""

import sys

from mailboxd.agents.acp.program import main

sys.exit(main())
