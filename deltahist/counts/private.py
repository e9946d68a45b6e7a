"""Private arrays that know how they were made, so that whoever publishes them cannot forget it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.counting import POINTS, Counting
from deltahist.errors import InputError


class Private(np.ndarray[Any, np.dtype[Any]]):
    """Counts or points of people: an array like any other, with `counting`, how they were made.

    Copies and views know it too. The result of arithmetic does not (the sum of two maps may hold a user twice) and
    is not published until it is said anew: `publish(np.asarray(counts), ..., contributions=..., dropped=...)`.

    >>> counts = Private.of(np.array([3, 4]), Counting(contributions=2))
    >>> counts.copy().counting.contributions, (counts + counts).counting is None, int(counts.sum())
    (2, True, 7)
    """

    counting: Counting | None

    @classmethod
    def of(cls, array: NDArray[Any], counting: Counting) -> Private:
        """The array, with what is known of it."""
        out = np.asarray(array).view(cls)
        out.counting = counting
        return out

    def __array_finalize__(self, made_from: Any) -> None:
        self.counting = getattr(made_from, "counting", None)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        into = options.get("out", ())
        if any(isinstance(x, Private) and x.counting is not None for x in into):
            raise InputError(
                "counts are not changed in place: what is known of how they were made would no longer be true; make "
                "new ones, or take a plain array, np.array(counts)"
            )
        if into:
            options["out"] = tuple(_plain(x) for x in into)
        return _unknown(getattr(ufunc, method)(*map(_plain, inputs), **options))

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        return _unknown(super().__array_function__(function, types, arguments, options))

    def __reduce__(self) -> Any:
        return Private.of, (np.asarray(self), self.counting)


def _plain(array: Any) -> Any:
    return np.asarray(array) if isinstance(array, Private) else array


def _unknown(result: Any) -> Any:
    """An array of the same figures of which nothing is known."""
    if not isinstance(result, np.ndarray) or not result.ndim:
        return result
    out = result.view(Private)
    out.counting = None
    return out


def how_made(data: ArrayLike, contributions: int | None, dropped: Iterable[str] = ()) -> Counting:
    """What is known of data that are to be published, with what the caller says besides.

    Raises InputError if it got lost, or the caller contradicts it.
    """
    known = data.counting if isinstance(data, Private) else POINTS
    if known is None:
        raise InputError(
            "the data come from arithmetic with counts, so that it is not known how many points of a user they hold "
            "and what was left out: give a plain array, np.asarray(counts), with contributions= and dropped="
        )
    return known.and_also(contributions, dropped)
