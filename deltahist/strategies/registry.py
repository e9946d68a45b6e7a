"""Strategies by name: how a release file's description becomes a strategy again."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from deltahist._validate import InputError
from deltahist.domain import Domain
from deltahist.strategies.base import Strategy
from deltahist.strategies.cuts import CutAugmented
from deltahist.strategies.flow import Flow
from deltahist.strategies.grids import Hierarchical, Identity, ShiftedGrids
from deltahist.strategies.optimal import Optimal
from deltahist.strategies.product import Cumulative, Wavelet
from deltahist.strategies.spectral import Spectral

STRATEGIES: dict[str, type[Strategy]] = {
    cls.__name__: cls
    for cls in (
        Identity,
        Cumulative,
        Hierarchical,
        Wavelet,
        ShiftedGrids,
        CutAugmented,
        Flow,
        Spectral,
        Optimal,
    )
}


def from_description(domain: Domain, description: dict[str, Any]) -> Strategy:
    """The strategy that `Strategy.describe` described.

    Raises
    ------
    InputError
        If the name is unknown or a parameter does not fit.
    """
    parameters = dict(description)
    name = parameters.pop("strategy", None)
    if name not in STRATEGIES:
        raise InputError(
            f"strategy is {name!r}: it must be one of {', '.join(STRATEGIES)} "
            "(a file of a newer version, or of a strategy that this program does not have?)"
        )
    for key, value in parameters.items():
        if key == "shares" and value is not None:
            parameters[key] = tuple(Fraction(s) for s in value)
        elif isinstance(value, list):
            parameters[key] = _tuples(value)
    try:
        return STRATEGIES[name].restore(domain, **parameters)
    except TypeError as problem:
        raise InputError(f"strategy {name} has unknown or missing parameters: {problem}") from None


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
