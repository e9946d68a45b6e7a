"""The map of the visits that tests count, and their counts by the definition."""

import numpy as np

import deltahist as dh

DOMAIN = dh.Domain((0, 0, 4, 2), (40, 20))


def counts_of(frame, domain=DOMAIN):
    """Counts by the definition, `Domain.flat_cells`."""
    flat = domain.flat_cells([frame["east"].to_numpy(np.float64), frame["north"].to_numpy(np.float64)])
    return np.bincount(flat, minlength=domain.size).reshape(domain.shape)
