"""Errors, and checks on public parameters: the keyword names the parameter, the message its value and rule."""

from __future__ import annotations

import math
import numbers
import unicodedata
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

#: Billionths of one ε, or one ρ: amounts that are charged, and levels of privacy, are whole numbers of them.
NANO = 10**9
#: Memory that a container may use and uses, in bytes: control groups of version 2 and 1.
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
#: Bytes per cell that counting, planning and noise take together.
BYTES_PER_CELL = 45


class InputError(ValueError):
    """A parameter or a file that cannot be used. The message names the value and the rule.

    >>> import deltahist as dh
    >>> dh.Domain((1, 0), (4,))
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: bounds are (1.0, 0.0): 1 must be less than 0 (west, south, east, north)
    """


class BudgetExceeded(InputError):  # noqa: N818
    """A charge that an account cannot pay; nothing was charged.

    >>> import deltahist as dh
    >>> dh.Window(length=2, epsilon=1).charge(0, 1.5)
    Traceback (most recent call last):
    ...
    deltahist.errors.BudgetExceeded: amount is 1.5 at step 0: steps -1 to 0 have spent 0 of 1, 1 is left
    """


class OutsideBounds(InputError):  # noqa: N818
    """More than one point in a hundred lies outside the bounds, and the caller chose no rule for such points.

    >>> import deltahist as dh
    >>> try:
    ...     dh.count([[7, 1], [8, 2]], dh.Domain((0, 5, 5, 10), (5, 5)))
    ... except dh.OutsideBounds as problem:
    ...     print("outside")
    outside
    """


class DamagedFile(InputError):  # noqa: N818
    """A file that is truncated, foreign, or contradicts itself.

    >>> import tempfile, deltahist as dh
    >>> with tempfile.NamedTemporaryFile(suffix=".json") as file:
    ...     _ = file.write(b"{}"), file.flush()
    ...     try:
    ...         dh.load(file.name)
    ...     except dh.DamagedFile as problem:
    ...         print("damaged description" in str(problem))
    True
    """


class DeltaHistWarning(UserWarning):
    """Something that works, but is probably a mistake.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", DeltaHistWarning)
    """


# --- checks -------------------------------------------------------------------------------------------------


def _refuse(name: str, value: Any, rule: str) -> InputError:
    try:
        return InputError(f"{name} is {value!r:.200}: it must be {rule}")
    except ValueError:  # Python prints no number of thousands of digits
        return InputError(f"{name} is too long a number: it must be {rule}")


def _refuse_number(name: str, value: Any, rule: str) -> InputError:
    return _refuse(name, value, f"{rule}, and not text" if isinstance(value, str) else rule)


def is_number(value: Any) -> bool:
    """Whether `value` is a real number (booleans are not)."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def check_positive(**parameter: Any) -> Any:
    """Return the one keyword's value, or raise InputError unless it is a finite number above zero.

    >>> check_positive(epsilon=0.5)
    0.5
    >>> check_positive(epsilon=-1)
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: epsilon is -1: it must be a finite number above zero
    """
    ((name, value),) = parameter.items()
    if not _is_finite(value) or value <= 0:
        raise _refuse_number(name, value, "a finite number above zero")
    return value


def check_finite(**parameter: Any) -> Any:
    """Return the one keyword's value, or raise InputError unless it is a finite number."""
    ((name, value),) = parameter.items()
    if not _is_finite(value):
        raise _refuse_number(name, value, "a finite number")
    return value


def check_whole(*, least: int = 1, **parameter: Any) -> int:
    """Return the one keyword's value as an int, or raise InputError unless it is a whole number >= least."""
    ((name, value),) = parameter.items()
    if not _is_finite(value) or value != int(value) or value < least:
        raise _refuse_number(name, value, f"a whole number of at least {least}")
    return int(value)


def check_choice(choices: tuple[Any, ...], **parameter: Any) -> Any:
    """Return the one keyword's value, or raise InputError unless it is among the choices."""
    ((name, value),) = parameter.items()
    if not any(value is c or (type(value) is type(c) and value == c) for c in choices):
        raise _refuse(name, value, f"one of {', '.join(map(repr, choices))}")
    return value


def normalize_name(**parameter: Any) -> str:
    """Return the one keyword's value, a name of a user, owner, account or key, in the only form that is compared.

    Text becomes NFC without spaces at its ends, a whole number its digits, a UUID its text. Raises InputError on
    anything else, on empty text, and on floats beyond 2^53, which cannot be told apart.

    >>> normalize_name(user=" Jose\u0301 ") == "Jos\u00e9", normalize_name(user=7.0), normalize_name(user=2**70)
    (True, '7', '1180591620717411303424')
    """
    ((name, value),) = parameter.items()
    if isinstance(value, str | uuid.UUID):
        text = unicodedata.normalize("NFC", str(value)).strip()
    elif _is_finite(value) and value == int(value) and (isinstance(value, numbers.Integral) or abs(value) <= 2**53):
        text = str(int(value))
    else:
        text = ""
    if not text:
        raise _refuse(name, value, "text that is not empty, or a whole number (a float of at most 2^53)")
    return text


def as_exact_fraction(**parameter: Any) -> Fraction:
    """Return a positive number as the exact fraction it stands for (a float is its binary value).

    >>> as_exact_fraction(share=0.5)
    Fraction(1, 2)
    """
    value = check_positive(**parameter)
    # Numbers of fixed length would overflow in fractions: only Python's own go in.
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(float(value))


def as_printed_fraction(value: Any) -> Fraction:
    """Return the fraction that a number means: a float stands for the decimal that it prints as.

    >>> as_printed_fraction(0.1), as_printed_fraction(Fraction(1, 3))
    (Fraction(1, 10), Fraction(1, 3))
    """
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(repr(float(value)))


def parse_number(text: str) -> Fraction | None:
    """Return the number that a text says exactly, a decimal or a/b; None if it says none, or one beyond all floats.

    >>> parse_number("0.1"), parse_number("1/3"), parse_number("1e999999999"), parse_number("9" * 5000)
    (Fraction(1, 10), Fraction(1, 3), None, None)
    """
    if len(text) > 1000:
        return None
    try:
        if "/" in text:
            value = Fraction(text)
        else:
            said = Decimal(text)
            if not said.is_finite() or (said and abs(said.adjusted()) > 400):
                return None
            value = Fraction(said)
        float(value)
    except (ValueError, ArithmeticError):
        return None
    return value


# --- memory -------------------------------------------------------------------------------------------------


def available_memory() -> int:
    """Bytes of memory that a new allocation can take without swapping, in a container what its limit leaves."""
    free = 1 << 62
    try:
        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int(meminfo["MemAvailable"].split()[0])
    except (OSError, LookupError, ValueError):  # not Linux: an allocation may fail later
        pass
    for limit, used in _LIMITS:
        try:
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # no such control group, or no limit ("max")
            continue
    return max(free, 0)


def fits_memory(needed: int, what: str) -> None:
    """Raise InputError if `needed` bytes are more than the machine has left, before anything is allocated."""
    if needed <= 1 << 20:  # every process gets that
        return
    available = available_memory()
    if needed > available:
        raise InputError(
            f"{what} needs about {needed / 2**30:,.1f} GiB, but {available / 2**30:,.1f} GiB are available: use larger "
            "cells or a smaller domain"
        )
