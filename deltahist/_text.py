"""Format numbers and lengths as text."""

from __future__ import annotations


def format_number(value: float, digits: int = 10) -> str:
    """Return a number as text, rounded to `digits` significant digits.

    >>> format_number(12345.6), format_number(12345.6, 3), format_number(0.5)
    ('12,345.6', '12,300', '0.5')
    """
    return f"{float(f'{value:.{digits}g}'):,}".removesuffix(".0")


def format_length(value: float, unit: str, digits: int = 3) -> str:
    """Return a length with its unit as text.

    >>> format_length(2000, "m"), format_length(1, "units")
    ('2 km', '1 unit')
    """
    if unit == "m" and value >= 1000:
        return f"{format_number(value / 1000, digits)} km"
    return f"{format_number(value, digits)} {unit.removesuffix('s') if value == 1 else unit}"
