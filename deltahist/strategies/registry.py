"""The registry of strategies: by class name in release files, by words, and as candidates of planning."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fractions import Fraction
from importlib.metadata import entry_points
from typing import Any, TypeVar

from deltahist.errors import InputError
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies.base import Strategy

#: Entry points by which installed packages make their strategies known.
ENTRY_POINTS = "deltahist.strategies"
_KNOWN: dict[str, type[Strategy]] = {}
_Kind = TypeVar("_Kind", bound=type[Strategy])


def register(strategy: _Kind) -> _Kind:
    """Make a class of strategies known, so that its releases load and it is planned with; a class decorator.

    An installed package does the same by an entry point of the group "deltahist.strategies".

    Raises
    ------
    InputError
        If it is no strategy, or its name is taken.

    >>> import dataclasses, numpy as np, deltahist as dh
    >>> @dh.register
    ... @dataclasses.dataclass(frozen=True, eq=False)
    ... class Doubled(dh.Strategy):
    ...     domain: dh.Domain
    ...     @property
    ...     def shape(self):
    ...         return self.domain.size, self.domain.size
    ...     def _matmat(self, x):
    ...         return 2 * x
    ...     _rmatmat = _matmat
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> int(dh.sensitivity(Doubled(near.domain), near))
    4
    """
    if not (isinstance(strategy, type) and issubclass(strategy, Strategy)):
        raise InputError(f"strategy is {strategy!r}: it must be a subclass of deltahist.Strategy")
    name = strategy.__name__
    for word, owner in ((name, _KNOWN.get(name)), *((w, _words().get(w)) for w in _words_of(strategy))):
        if owner is not None and (owner.__module__, owner.__qualname__) != (
            strategy.__module__,
            strategy.__qualname__,
        ):
            raise InputError(
                f"strategy {name} of {strategy.__module__} cannot be registered: {word!r} is "
                f"{owner.__qualname__} of {owner.__module__} already; give it another name"
            )
    _KNOWN[name] = strategy
    return strategy


def strategies() -> dict[str, type[Strategy]]:
    """Return every known strategy by class name: the package's own, registered ones, and entry points'."""
    _load_entry_points()
    return dict(_KNOWN)


def is_own(strategy: Strategy) -> bool:
    """Return whether a strategy's class is the package's own, whose tests have checked it."""
    return type(strategy).__module__.partition(".")[0] == __name__.partition(".")[0]


@functools.cache
def _load_entry_points() -> None:
    for point in entry_points(group=ENTRY_POINTS):
        register(point.load())


def texts() -> str:
    """Return all texts that `named` takes, for help and messages."""
    return ", ".join(text for cls in strategies().values() for text in cls.texts)


def _words_of(strategy: type[Strategy]) -> Iterator[str]:
    for text in strategy.texts:
        yield text.partition("[")[0].partition(":")[0]


def _words() -> dict[str, type[Strategy]]:
    return {word: cls for cls in _KNOWN.values() for word in _words_of(cls)}


def named(text: str, near: Neighbourhood, *, norm: int = 1) -> Strategy:
    """Return the strategy of a text such as "flow" or "hierarchical:8"; lengths are in cells.

    Parameters
    ----------
    near : the neighbourhood. norm : 1 for Laplace, 2 for Gaussian noise.

    Raises
    ------
    InputError
        On an unknown name or parameters that do not fit.

    >>> named("hierarchical:8", Neighbourhood(Domain((0, 1), (64,)), 0.1)).name
    'Hierarchical'
    """
    said = text.strip().lower()
    _load_entry_points()
    found = _words().get(said.partition(":")[0])
    if found is None:
        raise InputError(f"strategy is {text!r}: it must be auto, {texts()}, with lengths in cells")
    return found.named(near, said, norm)


def from_description(domain: Domain, description: dict[str, Any]) -> Strategy:
    """Return the strategy that `Strategy.describe` described.

    Raises
    ------
    InputError
        If the name is unknown or a parameter does not fit.
    """
    parameters = dict(description)
    name = parameters.pop("strategy", None)
    if name not in _KNOWN:
        _load_entry_points()
    if name not in _KNOWN:
        raise InputError(
            f"strategy is {name!r}: it must be one of {', '.join(_KNOWN)} (a file of a newer version, or of a strategy "
            "from another package? import that package first, or let it have an entry point)"
        )
    for key, value in parameters.items():
        if key == "shares" and value is not None:
            parameters[key] = tuple(Fraction(s) for s in value)
        elif isinstance(value, list):
            parameters[key] = _tuples(value)
    try:
        return _KNOWN[name].restore(domain, **parameters)
    except TypeError as problem:
        raise InputError(f"strategy {name} has unknown or missing parameters: {problem}") from None


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
