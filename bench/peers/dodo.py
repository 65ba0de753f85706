"""doit: a node is a task with a command, without a shell."""

import json
import os

with open(os.environ["BENCH_GRAPH"]) as file:
    GRAPH = json.load(file)
TRUE = os.environ["BENCH_TRUE"]
DOIT_CONFIG = {"verbosity": 0, "reporter": "zero"}


def task_node():
    for number, needs in enumerate(GRAPH):
        yield {"name": str(number), "actions": [[TRUE]], "task_dep": [f"node:{need}" for need in needs]}
