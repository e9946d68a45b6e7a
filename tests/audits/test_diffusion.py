"""Audits of responses over a network: pairs and triples at different levels, through the public class.

Every release is one user's responses to requesters at distances 1, 2 and 3; all users of a star hold the same data, so
that one object gives thousands of independent releases. Two data sets are as far apart as the promise goes: α in
lattice steps. An event (a threshold on a score) is learnt on one sample and tested on another, with Clopper and
Pearson's bounds. Each audit has 0.1% / `AUDITS` of false alarms, all together 0.1%. Planted bugs show the power.
"""

import hashlib

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.network import diffusion
from deltahist.noise.paths import BitPaths, VectorPaths
from tests.audits.cases import quick
from tests.audits.harness import ERROR, log_ratio_bound

USERS = 6_000
LEVELS = {1: 1.0, 2: 0.8, 3: 0.5}
#: name: columns, α in lattice steps of one (without what rounding adds), asked at these distances.
CASES = {
    "a number, once": (("v",), 4, (1,)),
    "a number, two requesters": (("v",), 4, (1, 3)),
    "a number, three requesters": (("v",), 4, (1, 2, 3)),
    "a number, two far away": (("v",), 4, (2, 3)),
    "a place, three requesters": (("x", "y"), 4, (1, 2, 3)),
    "a bit, three requesters": (("b",), None, (1, 2, 3)),
}
AUDITS = len(CASES)
#: What is promised on the lattice: places move along each axis by a step at most when they are put on it.
REACH = {name: 1 if alpha is None else alpha + 2 * (len(columns) > 1) for name, (columns, alpha, _) in CASES.items()}
LEAVES = [f"user {i}" for i in range(USERS)]
STAR = dh.network.Network.from_edges([*((leaf, "1") for leaf in LEAVES), ("1", "2"), ("2", "3")])


def mechanism_of(case):
    columns, alpha, _ = CASES[case]
    return dh.network.DiffusionMechanism(STAR, LEVELS, alpha, columns=columns, step=None if alpha is None else 1)


def responses(case, value, seed):
    """Releases (users, requesters, n) of users who all hold one value."""
    columns, _, asked = CASES[case]
    data = pd.DataFrame([value] * USERS, columns=list(columns), index=LEAVES)
    made = dh.network.Diffusion(data, mechanism_of(case), rng=np.random.default_rng(seed))
    pairs = pd.DataFrame([(leaf, str(distance)) for distance in asked for leaf in LEAVES])
    found = made.responses(pairs)[list(columns)].to_numpy()
    return found.reshape(len(asked), USERS, -1).transpose(1, 0, 2)


def scores(found, first, second, epsilons):
    """Scores (releases,) that are larger under `first`: likelihood ratios of each response, and of all together."""
    near, far = (np.linalg.norm(found - np.array(v, dtype=float), axis=2) for v in (first, second))
    gains = (far - near) * epsilons
    single = {f"response {i}": gains[:, i] for i in range(gains.shape[1])}
    return {**single, "all": gains.sum(axis=1), "least": gains.min(axis=1)}


def audit(case, seed):
    """A lower confidence bound of the log ratio that an event has, and what is promised."""
    columns, alpha, asked = CASES[case]
    promised = max(LEVELS[d] for d in asked)
    zero = [0.0 if alpha is None else 50.0] * len(columns)
    moved = [zero[0] + REACH[case], *zero[1:]]
    epsilons = np.array([LEVELS[d] for d in asked])
    samples = [[responses(case, value, 4 * seed + 2 * i + k) for k, value in enumerate((zero, moved))] for i in (0, 1)]
    best = (-np.inf, None)
    for one, other in ((0, 1), (1, 0)):
        values = zero, moved
        told = [scores(samples[0][k], values[one], values[other], epsilons) for k in (one, other)]
        for name in told[0]:
            for cut in np.unique(np.quantile(told[0][name], np.linspace(0, 1, 40), method="lower")):
                p, q = ((t[name] >= cut - 1e-9).mean() for t in told)
                p, q = (p * USERS + 0.5) / (USERS + 1), (q * USERS + 1) / (USERS + 1)
                margin = (np.log(p / q) - promised) / np.sqrt((1 - p) / p + (1 - q) / q + 1e-12)
                best = max(best, (margin, (one, other, name, cut)), key=lambda found: found[0])
    one, other, name, cut = best[1]
    hits = [
        int((scores(samples[1][k], (zero, moved)[one], (zero, moved)[other], epsilons)[name] >= cut - 1e-9).sum())
        for k in (one, other)
    ]
    return log_ratio_bound(*hits, USERS, 0.0, ERROR / AUDITS), promised


@pytest.mark.parametrize("case", quick(CASES, *(case for case in CASES if "three" in case)))
def test_responses_keep_the_promise_of_the_nearest(case):
    bound, promised = audit(case, 20181)
    assert bound <= promised
    # The audit looks where the ratio is large; of places few releases lie where it is largest.
    assert bound > (0.1 if len(CASES[case][0]) > 1 else 0.5) * promised


class Redrawn:
    """Paths whose noise at every level has a key of its own, as if each requester got an answer of their own."""

    def __init__(self, kind, key, *shape):
        self.kind, self.key, self.shape = kind, key, shape

    def at(self, users, levels, *bits):
        out = None
        for level in np.unique(levels).tolist():
            rows = levels == level
            key = hashlib.sha256(self.key + str(level).encode()).digest()
            found = self.kind(key, *self.shape).at(users[rows], levels[rows], *(b[rows] for b in bits))
            out = np.zeros((len(levels), *found.shape[1:]), dtype=found.dtype) if out is None else out
            out[rows] = found
        return out


class Louder(BitPaths):
    """Bits that are answered at twice their ε."""

    def at(self, users, levels, bits):
        return super().at(users, 2 * levels, bits)


def redraw(monkeypatch):
    for name, kind in (("VectorPaths", VectorPaths), ("BitPaths", BitPaths)):
        monkeypatch.setattr(diffusion, name, lambda *how, kind=kind: Redrawn(kind, *how))


def halve(monkeypatch):
    monkeypatch.setattr(diffusion, "VectorPaths", lambda key, n, reach: VectorPaths(key, n, reach // 2))
    monkeypatch.setattr(diffusion, "BitPaths", Louder)


def understate(monkeypatch):
    """α rounded to a step too few."""
    monkeypatch.setattr(dh.network.DiffusionMechanism, "reach", property(lambda self: REACH["a number, once"] - 1))


@pytest.mark.parametrize(
    ("plant", "case"),
    [
        (redraw, "a number, two requesters"),
        (halve, "a bit, three requesters"),
        (understate, "a number, once"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                (redraw, "a place, three requesters"),
                (redraw, "a bit, three requesters"),
                (halve, "a number, once"),
                (redraw, "a number, three requesters"),
                (redraw, "a number, two far away"),
                (halve, "a place, three requesters"),
            )
        ),
    ],
)
def test_planted_bugs_are_caught(plant, case, monkeypatch):
    plant(monkeypatch)
    bound, promised = audit(case, 20182)
    assert bound > promised


def test_the_reach_is_that_of_the_mechanism():
    assert all(mechanism_of(case).reach == REACH[case] for case in CASES)
