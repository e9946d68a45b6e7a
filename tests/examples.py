"""Small random domains, neighbourhoods and strategies that drive the shared tests."""

import functools
import itertools
import math
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import shapely

import deltahist as dh
from deltahist.strategies import (
    Cumulative,
    CutAugmented,
    Flow,
    Hierarchical,
    Identity,
    Optimal,
    ShiftedGrids,
    Spectral,
    Tents,
    Wavelet,
    dyadic_grids,
)
from deltahist.strategies.flow.noise import HubLine

#: Beyond every source of the examples.
OUTSIDE = 1000.0


def quiet(domain, delta, sources=None, limits=None):
    """A neighbourhood without advice: odd ratios of δ to the cell and far sources are meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dh.errors.DeltaHistWarning)
        return dh.Neighbourhood(domain, delta, sources, limits)


def random_domain(rng, ndim=None, most=(12, 5)):
    """A domain of at most 12 cells, or 5 × 5; cells need not be square."""
    ndim = int(rng.integers(1, 3)) if ndim is None else ndim
    shape = tuple(rng.integers(1, most[ndim - 1] + 1, ndim).tolist())
    sides = [shape[0]] if ndim == 1 else [shape[0], shape[1] * float(rng.choice([1, 0.5, 1.7]))]
    return dh.Domain((0,) * ndim + tuple(sides), shape)


def random_neighbourhood(rng, domain):
    """δ from a fifth of a cell to the whole domain; any kind of source, some of them outside the domain."""
    delta = float(rng.choice([rng.uniform(0.2, 5), rng.integers(1, 5)]))
    kinds = [None, "boundary", "point", "points"] + (["left", "right"] if domain.ndim == 1 else ["box"])
    kind = kinds[rng.integers(len(kinds))]
    sources = kind
    if kind in ("point", "points"):
        place = [rng.integers(0, 2 * n + 1) / 2 * c for n, c in zip(domain.shape, domain.cell, strict=True)]
        place += [0] * (2 - domain.ndim)
        sources = shapely.Point(place)
    if kind == "points":
        far = [int(rng.integers(-30, 60)) for _ in domain.shape] + [0] * (2 - domain.ndim)
        sources = shapely.MultiPoint([place, far])
    elif kind == "box":
        ends = np.sort(rng.integers(0, np.array(domain.shape)[:, None] + 1, (2, 2)), axis=1)
        low, high = (ends[:, i] * np.array(domain.cell) for i in (0, 1))
        sources = shapely.box(*low, *(high + np.array(domain.cell) / 4))
    return quiet(domain, delta, sources)


def _shares(rng, number):
    return tuple(Fraction(int(k), 2) for k in rng.integers(1, 5, number))


def _shifted(rng, domain):
    shift, times = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    m = int(rng.integers(1, times + 1))
    return ShiftedGrids(domain, width=shift * times, shift=shift, m=m)


def _cuts(rng, domain):
    rows = rng.random((int(rng.integers(1, 7)), domain.size)) < 0.4
    sets = tuple(tuple(np.flatnonzero(r).tolist()) for r in rows if r.any()) or ((0,),)
    return CutAugmented(domain, sets)


def _hierarchical(rng, domain):
    plain = Hierarchical(domain, int(rng.integers(2, 5)))
    return plain if rng.random() < 0.6 else Hierarchical(domain, plain.branching, _shares(rng, len(plain.widths)))


def random_tents(rng, domain):
    """Tents of any spacing, degree and shares."""
    spacing = tuple(int(rng.integers(1, min(n, 9) + 1)) for n in domain.shape)
    shares = _shares(rng, 2) if rng.random() < 0.7 else None
    return Tents(domain, spacing, int(rng.integers(1, 4)), shares)


def random_flow(rng, domain, arrivals=True, hubs=True):
    """A flow with any blocks, sums, shares, arrivals and hubs; None if the domain is a single block."""
    block = tuple(int(rng.integers(1, min(n, 3) + 1)) for n in domain.shape)
    blocks = [-(-n // b) for n, b in zip(domain.shape, block, strict=True)]
    if max(blocks) < 2:
        return None
    widths = ()
    if domain.ndim == 2:
        possible = range(2, max(blocks) + 1)
        number = min(len(possible), int(rng.integers(0, 3)))
        widths = tuple(sorted(rng.choice(possible, size=number, replace=False).tolist()))
    some = rng.choice(int(np.prod(blocks)), size=min(2, int(np.prod(blocks))), replace=False)
    entry = ["boundary", tuple(sorted(some.tolist())), None][rng.integers(3)] if arrivals else None
    spacing, width = None, ()
    if hubs and rng.random() < 0.6:
        spacing = 1 + 2 * int(rng.integers(0, (min(max(blocks), 6) + 1) // 2))
        number = max(len(HubLine(n, spacing).places) for n in blocks)
        width = (int(rng.integers(2, min(number, 5) + 1)),) if number > 1 and rng.random() < 0.5 else ()
    if width and 2 * width[0] <= number and rng.random() < 0.5:
        width = (*width, 2 * width[0])
    strips = bool(width) and domain.ndim == 2 and min(blocks) > spacing and rng.random() < 0.5
    more = (entry, spacing, width, bool(rng.random() < 0.5), bool(strips))
    flow = Flow(domain, block, widths, None, *more)
    if rng.random() < 0.5:
        return flow
    return Flow(domain, block, widths, _shares(rng, len(flow.groups)), *more)


def served_flows(number, seed, most=(12, 5), hubs=False, arrivals=lambda near: True):
    """Flows, with hubs alone if asked for, and the neighbourhoods that they serve, with the generator."""
    rng = np.random.default_rng(seed)
    while number:
        domain = random_domain(rng, most=most)
        near = random_neighbourhood(rng, domain)
        flow = random_flow(rng, domain, arrivals=arrivals(near))
        if flow is None or (near.source_cells.any() and flow.keeps_total) or (hubs and flow.hubs is None):
            continue
        number -= 1
        yield rng, near, flow


#: Name -> how to make a random example on a domain.
STRATEGIES = {
    "Identity": lambda rng, domain: Identity(domain),
    "Cumulative suffix": lambda rng, domain: Cumulative(domain),
    "Cumulative prefix": lambda rng, domain: Cumulative(domain, "prefix"),
    "Hierarchical": _hierarchical,
    "Wavelet": lambda rng, domain: Wavelet(domain),
    "ShiftedGrids": _shifted,
    "ShiftedGrids dyadic": lambda rng, domain: dyadic_grids(domain, int(rng.integers(1, 3))),
    "CutAugmented": _cuts,
    "Tents": random_tents,
    "Spectral": lambda rng, domain: Spectral(random_neighbourhood(rng, domain)),
}


def _served_flow(rng, near):
    """A flow that serves the neighbourhood, or None."""
    flow = random_flow(rng, near.domain, arrivals=not near.fixed_membership)
    return None if flow is None or (near.source_cells.any() and flow.keeps_total) else flow


def _small_optimum(rng, near):
    """An optimum for arrivals at the boundary, which serves every neighbourhood; None on one cell, or many."""
    if not 1 < near.domain.size <= 16:
        return None
    return Optimal(replace(near, sources="boundary"))


#: Name -> how to make a random example for a neighbourhood, None where it serves it not: those of any domain, and those
#: that are made for a neighbourhood.
EVERY_STRATEGY = {name: lambda rng, near, make=make: make(rng, near.domain) for name, make in STRATEGIES.items()} | {
    "Flow": _served_flow,
    "Optimal": _small_optimum,
}


def gap_neighbours(near):
    """Pairs of neighbouring cells and the source cells, from the definition, in fractions; no library code.

    Cells are neighbours iff the gap between them is less than δ. Sides and δ of the examples are small
    decimals, so that fractions of their decimal text are exact.
    """
    domain = near.domain
    side = [Fraction(hi).limit_denominator(10**6) / n for hi, n in zip(domain.high, domain.shape, strict=True)]
    delta = Fraction(near.delta).limit_denominator(10**9)
    # In units of which all of them are whole numbers, of any length.
    unit = math.lcm(delta.denominator, *(s.denominator for s in side))
    side, reach = [int(s * unit) for s in side], int(delta * unit)
    cells = np.array(list(itertools.product(*(range(n) for n in domain.shape))))
    gaps = [
        np.array([(max(d - 1, 0) * s) ** 2 for d in range(n)], object) for n, s in zip(domain.shape, side, strict=True)
    ]
    close = functools.reduce(np.add.outer, gaps) < reach**2
    pairs = np.argwhere(np.triu(close[*np.moveaxis(np.abs(cells[:, None] - cells), -1, 0)], 1))
    return [(i, j) for i, j in pairs.tolist()], np.flatnonzero(_touched(near, cells, side, reach, unit)).tolist()


def _touched(near, cells, side, reach, unit):
    kind, last = near.sources, np.array(near.domain.shape) - 1
    if kind is None:
        return np.zeros(len(cells), bool)
    if isinstance(kind, str):
        ends = [cells] * (kind in ("left", "boundary")) + [last - cells] * (kind in ("right", "boundary"))
        return (np.hstack(ends).astype(object) * (side * len(ends)) < reach).any(axis=1)
    # What is counted in a cell: at the rim that is everything outside, too.
    length = np.array([s / unit for s in side])
    low, high = (np.where(cells == 0, -OUTSIDE, cells * length), np.where(cells == last, OUTSIDE, (cells + 1) * length))
    if cells.shape[1] == 1:
        boxes = shapely.linestrings([[(a, 0), (b, 0)] for (a,), (b,) in zip(low, high, strict=True)])
    else:
        boxes = shapely.box(*low.T, *high.T)
    # Half a millionth tells "exactly δ away", which does not touch, from rounding.
    return shapely.distance(boxes, kind) < reach / unit - 5e-7
