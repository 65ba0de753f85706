"""Where the nodes of a directed graph stand: in columns, so that every arrow leads from left to right.

The usual four steps (Sugiyama, Tagawa, Toda 1981): ranks by the longest way, a place-holder wherever an arrow passes
a rank, an order within each rank that crosses few arrows (barycentres), and heights that make arrows straight. The
last is solved exactly per rank: least squares under a fixed order, by pooling adjacent violators. All of it takes
O(sweeps * (nodes + arrows)), and the same graph gives the same drawing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

SWEEPS = 6
_MOST_HOLDERS = 4_000
"""Place-holders; arrows beyond that are drawn straight."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Centres in units of rows, columns in ranks: `at[id] = (rank, y)`; `via` are the points an arrow passes."""

    at: Mapping[str, tuple[int, float]]
    via: Mapping[tuple[str, str], tuple[tuple[int, float], ...]]
    ranks: int
    height: float


@dataclass(slots=True)
class _Work:
    ranks: list[list[str]]
    left: dict[str, list[str]] = field(default_factory=dict)
    right: dict[str, list[str]] = field(default_factory=dict)
    space: dict[str, float] = field(default_factory=dict)
    """Rows that each takes: 1, and less for a place-holder."""

    def join(self, start: str, end: str) -> None:
        self.right.setdefault(start, []).append(end)
        self.left.setdefault(end, []).append(start)


def place(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Placed:
    """Places for all nodes. Arrows that would close a circle are not followed; unknown ends must not occur."""
    pairs = list(dict.fromkeys(edges))
    rank = _ranks(nodes, pairs)
    work = _Work([[] for _ in range(max(rank.values(), default=-1) + 1)])
    for node in nodes:
        work.ranks[rank[node]].append(node)
        work.space[node] = 1.0
    chains = _hold_places(work, rank, pairs)
    for sweep in range(SWEEPS):
        _order(work, forward=sweep % 2 == 0)
    heights = _heights(work)
    least = min(heights.values(), default=0.0)
    at = {node: (rank[node], heights[node] - least) for node in nodes}
    via = {
        pair: tuple((rank[pair[0]] + 1 + step, heights[name] - least) for step, name in enumerate(chain))
        for pair, chain in chains.items()
    }
    return Placed(at, via, len(work.ranks), max(heights.values(), default=0.0) - least + 1.0)


def _ranks(nodes: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The longest way to each node, in arrows."""
    after: dict[str, list[str]] = {node: [] for node in nodes}
    waits = dict.fromkeys(nodes, 0)
    for start, end in pairs:
        after[start].append(end)
        waits[end] += 1
    rank = dict.fromkeys(nodes, 0)
    seen: set[str] = set()
    free = deque(node for node in nodes if not waits[node])
    rest = iter(nodes)
    while len(seen) < len(nodes):
        if not free:  # a circle, which a DAG has not: begin it anywhere
            free.append(next(node for node in rest if node not in seen))
        node = free.popleft()
        seen.add(node)
        for end in after[node]:
            if end in seen:
                continue
            rank[end] = max(rank[end], rank[node] + 1)
            waits[end] -= 1
            if waits[end] == 0:
                free.append(end)
    return rank


def _hold_places(
    work: _Work, rank: Mapping[str, int], pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[str]]:
    chains: dict[tuple[str, str], list[str]] = {}
    room = _MOST_HOLDERS
    for number, (start, end) in enumerate(pairs):
        between = range(rank[start] + 1, rank[end])
        if rank[end] <= rank[start]:
            continue
        if len(between) > room:
            continue
        room -= len(between)
        chain = [f"\0{number}.{at}" for at in between]
        for at, name in zip(between, chain, strict=True):
            work.ranks[at].append(name)
            work.space[name] = 0.35
        for one, other in zip([start, *chain], [*chain, end], strict=True):
            work.join(one, other)
        if chain:
            chains[start, end] = chain
    return chains


def _order(work: _Work, *, forward: bool) -> None:
    """Each rank in the order of the mean places of its neighbours on one side; ties stay as they were."""
    ranks = work.ranks[1:] if forward else work.ranks[-2::-1]
    before = work.ranks[0] if forward else work.ranks[-1] if work.ranks else []
    sides = work.left if forward else work.right
    for rank in ranks:
        where = {name: place for place, name in enumerate(before)}
        own = {name: float(place) for place, name in enumerate(rank)}
        scale = len(before) / max(len(rank), 1)
        mean = {
            name: sum(where[other] for other in others) / len(others)
            if (others := [other for other in sides.get(name, ()) if other in where])
            else own[name] * scale
            for name in rank
        }
        rank.sort(key=lambda name: (mean[name], own[name]))
        before = rank


def _heights(work: _Work) -> dict[str, float]:
    heights: dict[str, float] = {}
    for rank in work.ranks:
        at = 0.0
        for name in rank:
            heights[name] = at + work.space[name] / 2
            at += work.space[name]
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        sides = work.left if forward else work.right
        for rank in work.ranks if forward else work.ranks[::-1]:
            _straighten(rank, sides, work.space, heights)
    return heights


def _straighten(
    rank: Sequence[str], sides: Mapping[str, list[str]], space: Mapping[str, float], heights: dict[str, float]
) -> None:
    """The heights nearest to the neighbours' mean that keep the order and the space: isotonic regression."""
    offset, offsets = 0.0, []
    for number, name in enumerate(rank):
        offset += (space[name] + space[rank[number - 1]]) / 2 if number else 0.0
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []
    for name, start in zip(rank, offsets, strict=True):
        others = sides.get(name)
        wanted = sum(heights[other] for other in others) / len(others) if others else heights[name]
        mean, count = wanted - start, 1
        while blocks and blocks[-1][0] >= mean:
            above, size = blocks.pop()
            mean = (above * size + mean * count) / (size + count)
            count += size
        blocks.append((mean, count))
    at = 0
    for mean, count in blocks:
        for name, start in zip(rank[at : at + count], offsets[at : at + count], strict=True):
            heights[name] = mean + start
        at += count
