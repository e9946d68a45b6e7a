"""Writing on pictures: fonts that have the signs of a text, and lines of a measured width."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltahist.errors import DeltaHistWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Points of the title above the whole picture, and of what stands below it; least room for both in inches.
_TITLE, _BELOW, _ROOM = 11.0, 7.5, 0.25
#: What Matplotlib says of a sign that its font does not have.
NO_SIGN = r"Glyph (\d+) .*missing from"


def choose_fonts(text: str) -> list[str]:
    """Return families of fonts that have the signs of a text: the usual one, and of the system's whichever it needs."""
    return list(_cover(frozenset(filter(str.isprintable, text)))[0])


def missing_signs(text: str) -> str:
    """Return the signs of a text that no font of this machine has.

    >>> missing_signs("Žižkov")
    ''
    """
    return "".join(sorted(_cover(frozenset(filter(str.isprintable, text)))[1]))


@functools.lru_cache(maxsize=1024)
def _cover(signs: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return families of fonts for some signs, and the signs that none of them has."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties, findfont, fontManager

    families, missing = list(rcParams["font.family"]), signs - _signs_of(findfont(FontProperties()))
    usual = [font for font in fontManager.ttflist if font.style == "normal" and font.weight == 400]
    # One of Matplotlib's own has a box for every sign there is.
    paths = {font.name: font.fname for font in usual if "Last Resort" not in font.name} if missing else {}
    while missing:
        # The font that has most of them; of several the first by name.
        best = max(sorted(paths), key=lambda name: len(missing & _signs_of(paths[name])))
        if not missing & _signs_of(paths[best]):
            break
        families.append(best)
        missing -= _signs_of(paths[best])
    return tuple(families), missing


@functools.cache
def _signs_of(path: Any) -> frozenset[str]:
    """Return the signs that a file of a font has."""
    from matplotlib.font_manager import get_font

    return frozenset(map(chr, get_font(path).get_charmap()))


def measure(line: str, size: float | str) -> float:
    """Return the width of a line in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=choose_fonts(line), size=size)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NO_SIGN)  # it is told when the picture is written
        return float(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0]) / 72


def wrap(text: str, inches: float, size: float | str, most: int | None = None) -> list[str]:
    """Break a text into lines of at most a width, as measured; what `most` lines do not hold becomes an ellipsis.

    >>> wrap("a title of five words", 0.7, 9, 2)
    ['a title of', 'five words']
    >>> wrap("a title of five words", 0.7, 9, 1)
    ['a title of…']
    """

    def fits(line: str) -> bool:
        return measure(line, size) <= inches

    lines = [""]
    for word in text.split():
        if fits(f"{lines[-1]} {word}".strip()):
            lines[-1] = f"{lines[-1]} {word}".strip()
            continue
        # A word that is wider than a line is cut, as are texts without spaces.
        for number, part in enumerate([word] if fits(word) else word):
            if lines[-1] and (number == 0 or not fits(lines[-1] + part)):
                lines.append("")
            lines[-1] += part
    if most is not None and len(lines) > most:
        last = lines[most - 1]
        while last and not fits(f"{last}…"):
            last = last[:-1]
        lines[most - 1 :] = [last.rstrip(" ,;:.") + "…"]
    return lines


@dataclass(frozen=True)
class Writing:
    """The writing around a whole picture: lines of the title and of what stands below, and its width in inches."""

    title: list[str]
    below: list[str]
    width: float

    @classmethod
    def of(cls, title: str, below: str, width: float) -> Writing:
        """Return the writing on a picture of a width in inches; the title has two lines at most."""
        return cls(wrap(title, width - 0.2, _TITLE, 2), wrap(below, width - 0.2, _BELOW), width)

    @property
    def height(self) -> float:
        """The inches that all lines take."""
        return _ROOM + 1.25 * (_TITLE * len(self.title) + _BELOW * len(self.below)) / 72

    def write(self, figure: Figure, *, publishable: bool) -> None:
        """Write the lines, and a mark across the picture unless it may be published."""
        if self.title[0]:
            heading = "\n".join(self.title)
            figure.suptitle(heading, fontsize=_TITLE, fontfamily=choose_fonts(heading), parse_math=False)
        below = "\n".join(self.below)
        figure.supxlabel(below, x=0.1 / self.width, ha="left", fontsize=_BELOW, color="0.3", parse_math=False)
        if not publishable:
            mark: dict[str, Any] = {"color": "crimson", "alpha": 0.35, "weight": "bold", "zorder": 10}
            size = min(40.0, 5.5 * self.width)
            figure.text(0.5, 0.5, "NOT FOR PUBLICATION", rotation=25, ha="center", va="center", fontsize=size, **mark)


def write_names(names: Iterable[Any], index: Iterable[Hashable]) -> tuple[str, ...]:
    """Return names of regions, each on one line; their rows where there is none, or no font has their signs.

    A warning tells signs that are missing. `index` has the rows, from 0, if the names are in another order.

    >>> write_names(["west", None], [1, 0])
    ('west', 'region 1')
    """
    called = ["" if name is None or name != name else " ".join(str(name).split()) for name in names]
    missing = missing_signs("".join(called))
    if missing:
        warnings.warn(
            f"no font of this machine has signs for {' '.join(missing[:10])}: regions named with them are called by "
            "their rows, such as 'region 3' for the third; install a font that has them, such as Noto Sans CJK",
            DeltaHistWarning,
            stacklevel=4,
        )
    rows: list[Any] = list(index)
    if {*rows} != {*range(len(called))}:
        rows = list(range(len(called)))
    written = [bool(name) and set(missing).isdisjoint(name) for name in called]
    return tuple(name if good else f"region {row + 1}" for name, good, row in zip(called, written, rows, strict=True))
