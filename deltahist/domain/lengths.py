"""Lengths as texts: a number, or a number with a unit of metres."""

from __future__ import annotations

import re

from deltahist.errors import InputError, positive

_LENGTH = re.compile(r"\s*([-+0-9.eE]+)\s*(km|m|cm|mm)\s*")
_METRES = {"km": 1000.0, "m": 1.0, "cm": 0.01, "mm": 0.001}


def metres(text: str) -> float:
    """Metres of a length with a unit.

    Raises
    ------
    InputError
        If the text is no number followed by km, m, cm or mm.

    >>> metres("0.5km")
    500.0
    """
    match = _LENGTH.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return float(match[1]) * _METRES[match[2]]
    except ValueError:
        raise InputError(
            f"length is {text!r}: it must be a number with a unit, such as 250m or 0.5km"
        ) from None


def has_unit(value: float | str) -> bool:
    """Whether a length is a text with a unit."""
    return isinstance(value, str) and _LENGTH.fullmatch(value) is not None


def length_times(length: float | str, factor: float) -> float | str:
    """A length, a number or text with its unit, times a factor.

    >>> length_times("0.5km", 1 / 4)
    '125m'
    """
    if isinstance(length, str) and has_unit(length):
        return f"{metres(length) * factor:.15g}m"
    return (_bare(length, "length") if isinstance(length, str) else float(length)) * factor


def number(value: float | str, crs: str | None, name: str) -> float:
    """A length without its unit: metres if it has one, which needs a CRS; InputError unless above zero."""
    if crs is None and has_unit(value):
        raise InputError(
            f"{name} is {value!r}, but the domain has no CRS and so no metres: "
            "give a plain number, or state the CRS of the bounds"
        )
    if isinstance(value, str):
        value = metres(value) if has_unit(value) else _bare(value, name)
    return float(positive(**{name: value}))


def _bare(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"{name} is {text!r}: it must be a number, or a number with a unit such as 250m"
        ) from None
