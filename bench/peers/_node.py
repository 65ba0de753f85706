"""What each driver has in common: a graph from a file, `/bin/true` for a node, a line of JSON at the end."""

import json
import resource
import subprocess
import sys
import threading
import time

GRAPH_FILE, JOBS = sys.argv[1], int(sys.argv[2])
with open(GRAPH_FILE) as file:
    GRAPH = json.load(file)
TRUE = sys.argv[3]


def run_node():
    subprocess.run([TRUE], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


class Progress:
    """Counters of unmet needs, in memory: what is ready next when a node has ended."""

    def __init__(self):
        self.lock = threading.Lock()
        self.unmet = [len(needs) for needs in GRAPH]
        self.dependants = [[] for _ in GRAPH]
        for node, needs in enumerate(GRAPH):
            for need in needs:
                self.dependants[need].append(node)
        self.left = len(GRAPH)
        self.all_ended = threading.Event()

    def roots(self):
        return [node for node, count in enumerate(self.unmet) if count == 0]

    def ended(self, node):
        ready = []
        with self.lock:
            for dependant in self.dependants[node]:
                self.unmet[dependant] -= 1
                if self.unmet[dependant] == 0:
                    ready.append(dependant)
            self.left -= 1
            if self.left == 0:
                self.all_ended.set()
        return ready


def begin():
    """The moment, and what has been used of the CPU by now, without children."""
    return time.perf_counter(), time.process_time()


def report(begun):
    """`begun` is what `begin` said; the work has ended now."""
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"wall": wall, "cpu": cpu, "peak_mb": round(peak, 1)}), flush=True)
