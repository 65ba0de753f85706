"""luigi with its local scheduler; a node's output is a file."""

import logging
import os
import sys

import luigi
from _node import GRAPH, JOBS, begin, report, run_node

logging.disable(logging.CRITICAL)


class Node(luigi.Task):
    number = luigi.IntParameter()

    def requires(self):
        return [Node(need) for need in GRAPH[self.number]]

    def output(self):
        return luigi.LocalTarget(f"out/{self.number}")

    def run(self):
        run_node()
        with self.output().open("w") as file:
            file.write("done\n")


class Whole(luigi.WrapperTask):
    def requires(self):
        needed = {need for needs in GRAPH for need in needs}
        return [Node(node) for node in range(len(GRAPH)) if node not in needed]


if __name__ == "__main__":
    sys.setrecursionlimit(100_000)
    os.mkdir("out")
    begun = begin()
    ok = luigi.build([Whole()], local_scheduler=True, workers=JOBS, log_level="CRITICAL")
    if not ok:
        sys.exit("luigi says that it failed")
    report(begun)
