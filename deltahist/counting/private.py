"""Private arrays that know how they were made, so that whoever publishes them cannot forget it."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.preprocessing import Preprocessing
from deltahist.space.domain import Domain


class Unshown:
    """Base of objects with private figures, which printing never shows: notebooks are handed on."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private: not shown)"


class Private(np.ndarray[Any, np.dtype[Any]]):
    """Counts or points of people: a read-only array with `counting`, how they were made, and their `domain`.

    Copies know the same. Whatever else NumPy makes of it knows nothing, since the sum of two maps, or rows taken twice,
    may hold a user twice. Only the caller can publish it then:
    `publish(np.asarray(counts), ..., contributions=..., dropped=...)`. Printing shows its shape and how it was made,
    never its figures; `np.asarray(counts)` has them.

    >>> counts = Private.of(np.array([3, 4]), Preprocessing(contributions=2))
    >>> counts.copy().counting.contributions, (counts + counts).counting is None, int(counts.sum())
    (2, True, 7)
    """

    counting: Preprocessing | None
    domain: Domain | None

    @classmethod
    def of(cls, array: NDArray[Any], counting: Preprocessing, domain: Domain | None = None) -> Private:
        """Make a read-only copy of an array, with its provenance."""
        plain = np.ascontiguousarray(array)
        # Bytes are what nobody can make writable again.
        own = np.frombuffer(plain.tobytes(), dtype=plain.dtype) if plain.size else np.zeros(0, plain.dtype)
        own.flags.writeable = False
        out = own.reshape(np.shape(array)).view(cls)
        for name, value in (("counting", counting), ("domain", domain)):
            np.ndarray.__setattr__(out, name, value)
        return out

    def __array_finalize__(self, made_from: Any) -> None:
        for name in ("counting", "domain"):
            np.ndarray.__setattr__(self, name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.counting is not None:
            _refuse_change()
        super().__setattr__(name, value)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        into = options.get("out", ()) or (inputs[:1] if method == "at" else ())
        if any(isinstance(x, Private) and x.counting is not None for x in into):
            _refuse_change()
        if "out" in options:
            options["out"] = tuple(_plain(x) for x in into)
        result = getattr(ufunc, method)(*map(_plain, inputs), **options)
        return _unknown(result)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        if function in (np.array_repr, np.array_str, np.array2string):
            return repr(self)
        return _unknown(function(*_plain(arguments), **_plain(options)))

    def __setitem__(self, place: Any, value: Any) -> None:
        if self.counting is not None:
            _refuse_change()
        super().__setitem__(place, value)

    def __repr__(self) -> str:
        """Return shape and provenance: a notebook shows them, and the figures are nobody else's."""
        # Only the map's shape is public: that of points, or of some of the cells, is their number.
        public = self.domain is not None and self.shape == self.domain.shape
        shape = f", {' × '.join(map(str, self.shape))}" if public else ""
        made = "made of private figures" if self.counting is None else f"{self.counting}"
        return f"<private {self.dtype} array{shape}: {made}; np.asarray shows its figures>"

    __str__ = __repr__

    def __format__(self, form: str) -> str:
        return repr(self)

    def copy(self, order: Any = "C") -> Private:
        """Return a copy with the same provenance."""
        return self._same(np.array(self, order=order, subok=False))

    def astype(self, dtype: Any, *how: Any, **more: Any) -> Private:  # type: ignore[override]
        """Return the figures in another type, with their provenance if that type holds all figures of this one."""
        found = np.asarray(self).astype(dtype, *how, **more)
        # What a type cannot hold would be other figures: 256 points are none in eight bits.
        return self._same(found) if np.can_cast(self.dtype, found.dtype, "safe") else _unknown(found)

    def _same(self, array: NDArray[Any]) -> Private:
        return array.view(Private) if self.counting is None else Private.of(array, self.counting, self.domain)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Private:
        return self.copy()

    def __reduce__(self) -> Any:
        if self.counting is None:
            return np.ndarray.view, (np.array(self), Private)
        return Private.of, (np.array(self), self.counting, self.domain)


def _refuse_change() -> NoReturn:
    raise InputError(
        "counts are not changed in place: what is known of how they were made would no longer be true; make new ones, "
        "or take a plain array, np.array(counts)"
    )


def _unknown(result: Any) -> Any:
    """Return an array of other figures, without provenance."""
    if isinstance(result, tuple | list):
        return type(result)(map(_unknown, result)) if type(result) in (tuple, list) else result
    return result.view(Private) if isinstance(result, np.ndarray) and result.ndim else result


def _plain(value: Any) -> Any:
    """Return the value with plain arrays, also inside of tuples, lists and dictionaries."""
    if isinstance(value, Private):
        return value.view(np.ndarray)
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value)) if type(value) in (tuple, list) else value
    return {k: _plain(v) for k, v in value.items()} if type(value) is dict else value
