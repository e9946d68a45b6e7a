"""Random words from a list, and how well noise fits a law."""

import numpy as np
from scipy import stats


def p_value(seen, chance):
    """The chi-square test of counts (n,) against probabilities (n,); neighbours are pooled to 20 expected draws."""
    number, cdf = seen.sum(), np.cumsum(chance) * seen.sum()
    # Ends of the pooled cells: wherever another 20 (or a thousandth) of the draws are expected.
    step = max(20.0, number / 1000)
    ends = np.unique(np.append(np.searchsorted(cdf, np.arange(step, number - step, step)), len(chance) - 1))
    expected, found = np.diff(cdf[ends], prepend=0), np.diff(np.cumsum(seen)[ends], prepend=0)
    keep = expected > 5
    statistic = ((found[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    return stats.chi2.sf(statistic, max(1, keep.sum() - 1))


class Scripted:
    """In place of a stream: the words given, then zeros; `used` is how many were taken."""

    def __init__(self, *words):
        self.left, self.used = list(words), 0

    def __call__(self, number):
        self.used += number
        return np.array([self.left.pop(0) if self.left else 0 for _ in range(number)], dtype=np.uint64)
