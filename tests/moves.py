"""Points on a small line, and by how many moves of one or some of them data sets differ: by brute force."""

import collections
import functools
import itertools

import numpy as np


@functools.cache
def neighbours(points, places, reach, together):
    """All data sets after at most `together` points have moved by at most `reach`."""
    out = {points}
    for which in itertools.combinations(range(len(points)), min(together, len(points))):
        ranges = [range(max(0, points[i] - reach), min(places - 1, points[i] + reach) + 1) for i in which]
        for to in itertools.product(*ranges):
            other = list(points)
            for i, place in zip(which, to, strict=True):
                other[i] = place
            out.add(tuple(sorted(other)))
    return frozenset(out)


@functools.cache
def distances(points, places, reach, together):
    """Number of moves to every other data set."""
    found, todo = {points: 0}, collections.deque([points])
    while todo:
        here = todo.popleft()
        for other in neighbours(here, places, reach, together):
            if other not in found:
                found[other] = found[here] + 1
                todo.append(other)
    return found


def moves_of(points, rank, reach, places):
    """Moves that make every place the quantile, from the definition: the nearest points on the way go there."""
    x = np.sort(points)
    out = []
    for place in range(places):
        between = x[rank - 1 :][x[rank - 1 :] < place] if place > x[rank - 1] else x[:rank][x[:rank] > place]
        out.append(int(sum(-(-abs(int(place - v)) // reach) for v in between)))
    return np.array(out)
