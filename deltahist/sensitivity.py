"""Exact sensitivity: the largest column norm of A E, in whole numbers and fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from deltahist._validate import InputError, fits_memory, one_of
from deltahist.neighbourhood import Neighbourhood
from deltahist.strategies.base import Strategy, whole_shares


class Root(float):
    """The square root of an exact number: a float that keeps the exact square.

    >>> Root.of(Fraction(2)).squared
    Fraction(2, 1)
    """

    squared: Fraction

    @classmethod
    def of(cls, squared: Fraction | int) -> Root:
        """The root of a number that is not negative."""
        out = cls(math.sqrt(squared))
        out.squared = Fraction(squared)
        return out


def sensitivity(strategy: Strategy, near: Neighbourhood, *, norm: int = 1) -> Fraction | Root:
    """Largest change of the (share-weighted) answers to a strategy between neighbouring data sets.

    The largest p-norm of a column of A E, where E is the neighbourhood's incidence matrix: one column per
    move and per arrival. For sets of cells and p = 1 it is the graph-cut sensitivity max_e C(e).
    Source: 2014, sections 5.2 and 5.3.

    Parameters
    ----------
    strategy, near : on one and the same domain.
    norm : 1 (Laplace noise) or 2 (Gaussian noise).

    Returns
    -------
    Fraction for the 1-norm; for the 2-norm a float whose attribute `squared` is the exact square.

    Raises
    ------
    InputError
        If the domains differ.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> near = dh.Neighbourhood(domain, delta=0.25, sources="left")
    >>> int(sensitivity(dh.strategies.Cumulative(domain), near)), int(sensitivity(dh.strategies.Identity(domain), near))
    (1, 2)
    """
    one_of((1, 2), norm=norm)
    if strategy.domain != near.domain:
        raise InputError("the strategy and the neighbourhood are on different domains: they must share one")
    cost = strategy.edge_cost(near, norm)
    if cost is None:
        cost = explicit_edge_cost(strategy, near, norm)
    return Fraction(cost) if norm == 1 else Root.of(Fraction(cost))


def explicit_edge_cost(strategy: Strategy, near: Neighbourhood, norm: int) -> Fraction:
    """The definition itself: the largest sum of (share · |entry|)^norm over the columns of A E.

    For small domains, for strategies without a closed form, and to test closed forms against.
    """
    shares, denominator = whole_shares([g.share for g in strategy.groups])
    weight = np.zeros(strategy.shape[0], dtype=np.int64)
    for group, share in zip(strategy.groups, shares, strict=True):
        weight[group.rows] = share**norm
    rows = strategy.matrix()
    edges = near.incidence()
    fits_memory(48 * rows.nnz * max(1, edges.nnz // max(1, near.domain.size)), "the matrix A E")
    change = abs(rows @ edges)
    if norm == 2:
        change = change.multiply(change)
    most = (change.T @ weight).max(initial=0)
    return Fraction(int(most), denominator**norm)
