"""Counts what the scripted agents did, from their own ledger: the witness that no daemon can talk to.

Usage: count_work.py LEDGER. Exit status 1 if any turn, or any dispatch of one attempt, was carried out twice.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

DELIVERY = -2
"""The number of the rule for a message that went into a mailbox, instead of to the agent."""
ASKED_AGAIN = -3
"""The number of the rule for a turn that asked for an answer again, because it had not been understood."""


def main() -> int:
    entries = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
    status = {entry["run_id"]: entry["status"] for entry in entries if entry["event"] == "end"}
    turns: Counter[tuple[str, ...]] = Counter()
    dispatches: Counter[tuple[str, ...]] = Counter()
    replies: Counter[tuple[str, ...]] = Counter()
    asked_again = 0
    for entry in entries:
        if entry["event"] != "begin" or status.get(entry["run_id"]) != "succeeded":
            continue
        if entry["rule"] == ASKED_AGAIN:
            asked_again += 1
        elif entry["rule"] != DELIVERY:
            turns[entry["agent"], entry["kind"], entry["local_id"]] += 1
        elif entry["kind"] == "task":
            dispatches[entry["agent"], entry["attempt_id"]] += 1
        else:
            replies[entry["agent"], entry["message_id"]] += 1
    twice = [" ".join(key) for counted in (turns, dispatches) for key, n in counted.items() if n > 1]
    # A reply may be handed over again after a crash, because its receiver knows it by its id and takes it once.
    again = replies.total() - len(replies)
    print(f"{len(turns)} turns, {len(dispatches)} dispatches, {len(replies)} replies ({again} handed over again)")
    if asked_again:
        print(f"{asked_again} answers were asked for again, in their sessions")
    for name in twice:
        print(f"done twice: {name}")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
