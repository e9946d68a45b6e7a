"""Noise laws of a strategy, for tests of strategies and decoders."""

import deltahist as dh
from deltahist.preprocessing import Preprocessing


def calibrate(strategy, near, *, contributions=1, **budget):
    """Return the law of each group of rows that makes a strategy private."""
    return dh.Mechanism(near, strategy, dh.Budget(**budget), Preprocessing(contributions)).laws
