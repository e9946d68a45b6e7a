"""Errors, and checks of parameters and memory. Each message states the name, the value and the rule."""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from pathlib import Path
from typing import Any

#: Billionths in one ε or ρ. Charges and privacy levels are whole numbers of billionths.
NANO = 10**9


class InputError(ValueError):
    """A parameter or a file that cannot be used.

    >>> import deltahist as dh
    >>> dh.Domain((0, 1), (0,))
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: shape is 0: it must be a whole number of at least 1
    """


class BudgetExceeded(InputError):  # noqa: N818
    """A charge that an account cannot pay. Nothing has been charged.

    >>> import deltahist as dh
    >>> dh.accounts.Window(length=2, epsilon=1).charge(0, 1.5)
    Traceback (most recent call last):
    ...
    deltahist.errors.BudgetExceeded: amount is 1.5 at step 0: steps -1 to 0 have spent 0 of 1, 1 is left
    """


class OutsideBounds(InputError):  # noqa: N818
    """More than 1% of the points lie outside the bounds, and the caller did not choose what to do with such points.

    >>> issubclass(OutsideBounds, InputError)
    True
    """


class DamagedFile(InputError):  # noqa: N818
    """A file that is truncated, inconsistent or of another kind.

    >>> issubclass(DamagedFile, InputError)
    True
    """


class DeltaHistWarning(UserWarning):
    """A warning about something that works, but is probably a mistake.

    >>> issubclass(DeltaHistWarning, UserWarning)
    True
    """


def _refuse(name: str, value: Any, rule: str) -> InputError:
    try:
        return InputError(f"{name} is {value!r:.200}: it must be {rule}")
    except ValueError:  # Python refuses to print integers with thousands of digits
        return InputError(f"{name} has thousands of digits: it must be {rule}")


def is_number(value: Any) -> bool:
    """Return True if a value is a real number, but not a boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # a whole number that exceeds the largest float
        return False


def check_finite(
    *, above: Any = -math.inf, least: Any = -math.inf, below: Any = math.inf, most: Any = math.inf, **parameter: Any
) -> Any:
    """Return the argument's value. Raises InputError unless it is a finite number within the limits.

    >>> check_finite(above=0, most=1, epsilon=-1)
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: epsilon is -1: it must be a finite number above 0 and at most 1
    """
    ((name, value),) = parameter.items()
    if not _is_finite(value) or not (above < value < below and least <= value <= most):
        limits = {"above": above, "at least": least, "below": below, "at most": most}
        rules = [f"{word} {float(limit):,.10g}" for word, limit in limits.items() if abs(limit) < math.inf]
        raise _refuse(name, value, f"a finite number {' and '.join(rules)}".strip())
    return value


def check_positive(**parameter: Any) -> Any:
    """Return the argument's value. Raises InputError unless it is a finite number above 0."""
    return check_finite(above=0, **parameter)


def check_whole(*, least: int = 1, **parameter: Any) -> int:
    """Return the argument's value as an int. Raises InputError unless it is a whole number of at least `least`."""
    ((name, value),) = parameter.items()
    if not _is_finite(value) or value != int(value) or value < least:
        raise _refuse(name, value, f"a whole number of at least {least}")
    return int(value)


def check_choice(choices: tuple[Any, ...], **parameter: Any) -> Any:
    """Return the argument's value. Raises InputError unless it is one of the choices (1.0 does not match 1)."""
    ((name, value),) = parameter.items()
    if (type(value), value) not in [(type(choice), choice) for choice in choices]:
        listed = ", ".join(map(repr, choices))
        raise _refuse(name, value, listed if len(choices) == 1 else f"one of {listed}")
    return value


def as_exact_fraction(**parameter: Any) -> Fraction:
    """Return the argument's value, which must be positive, as a fraction. A float keeps its exact binary value."""
    value = check_positive(**parameter)
    return as_printed_fraction(value) if isinstance(value, numbers.Rational) else Fraction(float(value))


def as_printed_fraction(value: Any) -> Fraction:
    """Return a number as a fraction. A float is read as the decimal that it prints.

    >>> as_printed_fraction(0.1), as_printed_fraction(Fraction(1, 3))
    (Fraction(1, 10), Fraction(1, 3))
    """
    # Convert NumPy's integers, which would overflow in fractions.
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(repr(float(value)))


def available_memory() -> int:
    """Return how many bytes can be allocated without swapping or exceeding a container's limit."""
    free = 1 << 62
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
    except (OSError, LookupError, ValueError, StopIteration):  # not Linux: an allocation may fail later
        pass
    for limit, used in (
        ("memory.max", "memory.current"),  # control groups: version 2, then version 1
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        group = Path("/sys/fs/cgroup")
        try:
            free = min(free, int((group / limit).read_text()) - int((group / used).read_text()))
        except (OSError, ValueError):  # no such control group, or no limit ("max")
            continue
    return max(free, 0)


def check_memory(needed: int, what: str) -> None:
    """Raise InputError if `needed` bytes exceed the free memory, unless they are at most 1 MiB."""
    if needed > 1 << 20 and needed > (available := available_memory()):
        raise InputError(
            f"{what} needs about {needed / 2**30:,.1f} GiB, but only {available / 2**30:,.1f} GiB is available: use "
            "larger cells or a smaller domain"
        )
