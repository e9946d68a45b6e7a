"""What pictures are made of, where they are drawn, and how figures are written on them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deltahist.domain import Domain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deltahist.releases.base import BaseRelease


def own_axes(ax: Axes | None) -> Axes:
    """The axes given, or those of a new figure that belongs to no window system."""
    if ax is not None:
        return ax
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def figure_of(value: float, digits: int = 3) -> str:
    """A number in so many digits, for people.

    >>> figure_of(12345.6), figure_of(0.012345), figure_of(-3)
    ('12,300', '0.0123', '−3')
    """
    return f"{float(f'{value:.{digits}g}'):,.10g}".replace("-", "−")


def note_above(ax: Axes, lines: Sequence[str], domain: Domain) -> None:
    """Small lines above a picture, broken to about its width."""
    wide = domain.ndim == 1 or sides(domain)[0] > 0.8 * sides(domain)[1]
    broken = [part for line in lines for part in textwrap.wrap(line, 62 if wide else 44)]
    ax.set_title("\n".join(broken), fontsize=8, loc="left" if is_narrow(domain) else "center")


def sides(domain: Domain) -> tuple[float, float]:
    """Width and height of a map."""
    wide, high = (hi - lo for lo, hi in zip(domain.low, domain.high, strict=True))
    return wide, high


def is_narrow(domain: Domain) -> bool:
    """Whether a map is too narrow to write across."""
    return domain.ndim == 2 and sides(domain)[0] < 0.2 * sides(domain)[1]


def is_wide(domain: Domain) -> bool:
    """Whether a map is so wide that its bar, and other pictures, lie below it."""
    return domain.ndim == 2 and sides(domain)[0] > 2.2 * sides(domain)[1]


def holds_points_from_outside(release: BaseRelease) -> bool:
    """Whether points outside the bounds were counted in the nearest cell, at the rim."""
    return "points outside" not in release.mechanism.counting.dropped
