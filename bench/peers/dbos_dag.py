"""DBOS on SQLite: a node is a durable workflow of one step. Who is ready next is counted in memory, in its favour."""

import logging
import os
import queue
import threading

from _node import JOBS, Progress, begin, report, run_node
from dbos import DBOS, SetWorkflowID

logging.disable(logging.CRITICAL)
os.environ.setdefault("DBOS__APPVERSION", "bench")


@DBOS.step()
def step():
    run_node()


@DBOS.workflow()
def node(number):
    step()
    return number


def main():
    DBOS(config={"name": "bench", "system_database_url": "sqlite:///dbos.sqlite", "run_admin_server": False})
    DBOS.launch()
    progress, ready = Progress(), queue.SimpleQueue()

    def work():
        while (number := ready.get()) is not None:
            with SetWorkflowID(f"node-{number}"):
                node(number)
            for following in progress.ended(number):
                ready.put(following)

    begun = begin()
    for root in progress.roots():
        ready.put(root)
    for _ in range(JOBS):
        threading.Thread(target=work, daemon=True).start()
    progress.all_ended.wait()
    report(begun)
    os._exit(0)


if __name__ == "__main__":
    main()
