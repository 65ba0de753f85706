"""huey on SQLite with fsync, eight worker threads. It has no graphs: who is ready next is counted in memory.

In its favour: after a crash nobody would know the graph. Polling is set as low as it goes well.

    python huey_dag.py GRAPH JOBS TRUE          or, with `enqueue N` after it: how fast N are put into the queue
"""

import logging
import sys

from _node import JOBS, Progress, begin, report, run_node
from huey import SqliteHuey

logging.getLogger("huey").setLevel(logging.ERROR)
huey = SqliteHuey(filename="huey.db", fsync=True)


def enqueue(count):
    begun = begin()
    for number in range(count):
        node(number)
    report(begun)


progress = Progress()


@huey.task()
def node(number):
    run_node()
    for ready in progress.ended(number):
        node(ready)
    return number


if __name__ == "__main__":
    if sys.argv[4:5] == ["enqueue"]:
        enqueue(int(sys.argv[5]))
        sys.exit()
    consumer = huey.create_consumer(
        workers=JOBS, worker_type="thread", periodic=False, initial_delay=0.001, backoff=1.05, max_delay=0.005,
        check_worker_health=False,
    )  # fmt: skip
    consumer.start()
    begun = begin()
    for root in progress.roots():
        node(root)
    progress.all_ended.wait()
    report(begun)
    sys.stdout.flush()
    consumer.stop()
