"""Every outcome of a collection with its exact probability, and the exact laws of cut Laplace noise."""

import itertools
from fractions import Fraction

import numpy as np


def texts_of_filters(mechanism):
    """A text for every filter of one cohort that some text has, by its bits; small filters only."""
    found = {}
    for number in range(400):
        at = mechanism.find_positions([str(number)])[0, 0]
        found.setdefault(tuple(int(b in at) for b in range(mechanism.bits)), str(number))
    return found


class Script:
    """In place of `coins`: user i's coins fall as the digits of i say; their probability is kept.

    Users are all outcomes of `calls` draws of `bits` coins each.
    """

    def __init__(self, bits, calls):
        self.bits, self.calls, self.called = bits, calls, 0
        self.users = 1 << bits * calls
        self.chance = np.full(self.users, Fraction(1), dtype=object)

    def coins(self, chances, which, words):
        """As `deltahist.noise.exact.coins`."""
        place = self.called * self.bits + np.arange(self.bits)
        shown = (np.arange(self.users)[:, None] >> place & 1).astype(bool)
        each = np.array(chances, dtype=object)[which]
        self.chance = self.chance * np.where(shown, each, 1 - each).prod(axis=1)
        self.called += 1
        return shown

    def law(self, *said):
        """Probabilities of what was said, from arrays (users, bits)."""
        assert self.called == self.calls
        out = {}
        for *row, chance in zip(*(s.tolist() for s in said), self.chance, strict=True):
            key = tuple(map(tuple, row))
            out[key] = out.get(key, 0) + chance
        assert sum(out.values()) == 1
        return out


def largest_ratio(first, second):
    """Largest ratio of two laws over all outcomes, in both directions."""
    assert set(first) == set(second)
    return max(max(first[o] / second[o], second[o] / first[o]) for o in first if first[o] or second[o])


def laplace_pairs(coarse, fine, reach):
    """P(coarse noise i, fine noise j) of integer Laplace noise of two parameters p > r, or p = r; |i|, |j| ≤ reach."""
    k = np.arange(-reach, reach + 1)

    def law(p):
        return (1 - p) / (1 + p) * p ** np.abs(k)

    if coarse == fine:
        return np.diag(law(fine))
    stays = fine / coarse * ((1 - coarse) / (1 - fine)) ** 2
    jump = (1 - coarse) / (1 + coarse) * coarse ** np.abs(k[:, None] - k)
    return law(fine) * (stays * np.eye(len(k)) + (1 - stays) * jump)


def cut_pairs(pairs, true, at, steps):
    """P(coarse bit, fine bit) after the cut, (2, 2), of bits `true` (coarse, fine) with noise pairs."""
    reach = len(pairs) // 2
    k = np.arange(-reach, reach + 1)
    out = np.zeros((2, 2))
    shown = [steps * b + k >= a for b, a in zip(true, at, strict=True)]
    for coarse, fine in itertools.product((0, 1), repeat=2):
        out[coarse, fine] = pairs[np.ix_(shown[0] == coarse, shown[1] == fine)].sum()
    return out
