"""The shapes of graphs: for each node, the numbers of the earlier nodes that it needs."""

from __future__ import annotations

import random
from collections.abc import Callable

Graph = list[list[int]]


def chain(nodes: int) -> Graph:
    """Each node needs the one before it."""
    return [[node - 1] if node else [] for node in range(nodes)]


def fan(nodes: int) -> Graph:
    """One root, a layer that needs it, and one node that needs the whole layer."""
    middle = list(range(1, nodes - 1))
    return [[], *([0] for _ in middle), middle or [0]]


def scattered(nodes: int, edges: int, seed: int = 7) -> Graph:
    """`edges` random dependencies; the same arguments give the same graph."""
    chance = random.Random(seed)
    needs: list[set[int]] = [set() for _ in range(nodes)]
    drawn = 0
    while drawn < edges:
        node = chance.randrange(1, nodes)
        need = chance.randrange(node)
        if need not in needs[node]:
            needs[node].add(need)
            drawn += 1
    return [sorted(of) for of in needs]


def layered(layers: int, width: int) -> Graph:
    """Each node needs the whole layer before it."""
    return [
        list(range((layer - 1) * width, layer * width)) if layer else []
        for layer in range(layers)
        for _ in range(width)
    ]


SHAPES: dict[str, Callable[[int], Graph]] = {
    "chain": chain,
    "fan": fan,
    "random": lambda nodes: scattered(nodes, 3 * nodes),
    "layered": lambda nodes: layered(nodes // 10, 10),
    "large": lambda nodes: scattered(nodes, 3 * nodes),
}
"""The shapes by name; each takes the number of nodes."""


def jobs(shape: str) -> int:
    """How many nodes run at once: one in a chain, otherwise eight."""
    return 1 if shape == "chain" else 8
