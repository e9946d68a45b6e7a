"""Pictures of releases: a colour for each block of cells, made when it is first drawn, on a scale of one or several."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.placement import block_error
from deltahist.errors import InputError
from deltahist.plots.colours import LINEAR, ColourScale, Ends, find_ends, is_dark, scale_between
from deltahist.plots.ground import block_areas, cell_areas, unit_of_area
from deltahist.plots.maps import merge_blocks, merge_cells
from deltahist.releases.sums import Difference
from deltahist.server.answers import Source
from deltahist.server.blocks import Extent, block_ends, summarize_blocks
from deltahist.server.catalogue import Served
from deltahist.strategies.base import sum_blocks

#: Colours of a scale; with the eighth bit a code is one of them hatched.
SHADES, HATCHED = 126, 128
#: The code of all that lies outside the map.
OUTSIDE = 127
#: Blocks along each side of a part whose colours are made together.
_PART = 256
#: Colours of differences, from less to more, which all eyes tell apart.
_DIVERGING = "RdBu_r"
#: Share of grey in the lines of a hatch, and the grey on pale and on dark colours.
_HATCH, _ON_PALE, _ON_DARK = 0.5, 0.45, 0.85
#: Cells of all pictures that are kept, each of about eleven bytes.
_MOST = 1 << 26
#: Scales of which the colours of a picture are kept.
_MOST_SCALES = 2
#: Cells of the steps of a series that are looked at for its scale.
_MOST_OF_SERIES = 1 << 23
#: Works out the values of the blocks of a width in an extent.
_Make: TypeAlias = Callable[[int, Extent], NDArray[np.uint8]]


@dataclass(frozen=True, eq=False)
class Colours:
    """The scale of pictures.

    Parameters
    ----------
    ends : of the scale. signed : whether values may be below zero.
    """

    ends: Ends
    signed: bool

    @functools.cached_property
    def scale(self) -> ColourScale:
        """From values to colours."""
        return scale_between(self.ends)

    @property
    def stops(self) -> list[tuple[float, str]]:
        """Round values with their colours."""
        ticks = np.array(self.scale.ticks)
        ticks = np.concatenate([-ticks[:0:-1], ticks]) if self.signed else ticks
        colours = self.palette[self.shades(ticks)]
        return [(value, "#" + bytes(colour).hex()) for value, colour in zip(ticks.tolist(), colours, strict=True)]

    def shades(self, values: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Return the number of the colour of each value."""
        place = np.asarray(self.scale.norm(np.abs(values) if self.signed else values))
        place = (1 + np.sign(values) * place) / 2 if self.signed else place
        return np.clip(place * SHADES, 0, SHADES - 1).astype(np.uint8)

    @functools.cached_property
    def palette(self) -> NDArray[np.uint8]:
        """Colours (256, 3) of all codes."""
        from matplotlib import colormaps

        shades = np.linspace(0, 1, SHADES)
        plain = (colormaps[_DIVERGING] if self.signed else self.scale.colours)(shades)[:, :3]
        grey = np.array([_ON_DARK if is_dark(colour) else _ON_PALE for colour in plain])[:, None]
        out = np.zeros((256, 3))
        out[:SHADES] = plain
        out[HATCHED : HATCHED + SHADES] = (1 - _HATCH) * plain + _HATCH * grey
        return np.round(255 * out).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Picture:
    """Colours of a release, or of a difference, for blocks of cells; they are worked out where they are drawn.

    Parameters
    ----------
    cells : the estimates (domain.shape) that `plot_map` shows.
    colours : the scale that suits them alone, in points per area.
    """

    source: Source
    cells: NDArray[np.float64]
    colours: Colours
    _shades: OrderedDict[tuple[float, float], dict[int, _Parts]] = field(default_factory=OrderedDict)
    _hatched: dict[int, _Parts] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source) -> Picture:
        """Make the picture of a map."""
        drawn: Any = source  # a release of counts, or a difference of two
        signed, linear = isinstance(source, Difference), None
        if signed:
            shown = merge_blocks(drawn.cells(), drawn.decoder)
        elif drawn.draws_nonnegative():
            shown, linear = drawn.cells(nonnegative=True), LINEAR * block_error(drawn.decoder, (1, 1))[0]
        else:
            shown = merge_cells(drawn)
        areas = cell_areas(drawn.domain)
        point = 1 / float(np.median(areas))  # one point in a cell
        linear = linear and linear * point
        ends = find_ends(np.abs(shown) / areas if signed else shown / areas, linear=linear, least=point)
        return cls(source, shown, Colours(ends, signed))

    def codes(
        self, colours: Colours, width: int, broad: int, x: NDArray[np.int64], y: NDArray[np.int64]
    ) -> NDArray[np.uint8]:
        """Return codes of colours (k,) at cells x and y (k,).

        Parameters
        ----------
        colours : their scale.
        width : of the blocks that have one colour, in cells. broad : of the blocks that are hatched or not.
        """
        shape = self.source.domain.shape
        of_scale = self._shades.setdefault(colours.ends[:2], {})
        self._shades.move_to_end(colours.ends[:2])
        if len(self._shades) > _MOST_SCALES:
            self._shades.popitem(last=False)
        shades = of_scale.setdefault(width, _Parts.of(shape, width))
        hatched = self._hatched.setdefault(broad, _Parts.of(shape, broad))
        return shades.find(x, y, functools.partial(self._shade, colours)) | hatched.find(x, y, self._hatch)

    def _shade(self, colours: Colours, width: int, extent: Extent) -> NDArray[np.uint8]:
        ends = [block_ends(n, width, some) for n, some in zip(self.cells.shape, extent, strict=True)]
        some = tuple(slice(first, last) for first, last in extent)
        sums = sum_blocks(self.cells[some], tuple(each[:-1] - each[0] for each in ends))
        return colours.shades(sums / block_areas(self.source.domain, ends))

    def _hatch(self, width: int, extent: Extent) -> NDArray[np.uint8]:
        return np.where(summarize_blocks(self.source, width, extent)["stands_out"], 0, HATCHED)


@dataclass(frozen=True, eq=False)
class _Parts:
    """An array of bytes for blocks of a width, filled where it is first looked at."""

    width: int
    shape: tuple[int, ...]
    values: NDArray[np.uint8]
    filled: NDArray[np.bool_]

    @classmethod
    def of(cls, shape: tuple[int, ...], width: int) -> _Parts:
        blocks = [-(-n // width) for n in shape]
        parts = [-(-n // _PART) for n in blocks]
        return cls(width, shape, np.zeros(blocks, dtype=np.uint8), np.zeros(parts, dtype=bool))

    def find(self, x: NDArray[np.int64], y: NDArray[np.int64], make: _Make) -> NDArray[np.uint8]:
        """Return the values (k,) of the blocks that hold cells x and y (k,)."""
        x, y = x // self.width, y // self.width
        wanted = np.zeros_like(self.filled)
        wanted[x // _PART, y // _PART] = True
        for part in np.argwhere(wanted & ~self.filled).tolist():
            step = _PART * self.width
            extent = [(i * step, min((i + 1) * step, n)) for i, n in zip(part, self.shape, strict=True)]
            blocks = self.values[tuple(slice(i * _PART, (i + 1) * _PART) for i in part)]
            blocks[:] = make(self.width, extent).reshape(blocks.shape)
            self.filled[tuple(part)] = True
        return self.values[x, y]


class Gallery:
    """Pictures of the releases and differences that were drawn last; for one thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], tuple[list[str], Picture]] = OrderedDict()
        self._ends: dict[str, Ends] = {}

    def find(self, source: Source, asked: Sequence[Served]) -> Picture:
        """Return the picture of a source, made when it is first wanted; InputError if it is of a line."""
        if source.domain.ndim == 1:
            raise InputError("the release is of a line: only maps are drawn in tiles; ask for its cells")
        names, digests = tuple(each.name for each in asked), [each.release.digest for each in asked]
        known, picture = self._kept.get(names, ([], None))
        if picture is None or known != digests:
            picture = Picture.of(source)
            self._kept[names] = digests, picture
        self._kept.move_to_end(names)
        while len(self._kept) > 1 and sum(each.cells.size for _, each in self._kept.values()) > _MOST:
            self._kept.popitem(last=False)
        return picture

    def find_colours(self, releases: Iterable[Served]) -> Colours:
        """Return the one scale of several maps; InputError as of `find`, or if their areas have other units."""
        found, units = [], set()
        for each in releases:
            if each.release.digest not in self._ends:
                self._ends[each.release.digest] = self.find(each.release, [each]).colours.ends
            found.append(self._ends[each.release.digest])
            units.add(unit_of_area(each.release.domain))
        if len(units) > 1:
            raise InputError("alike is of another sort of map: one scale must have one unit")
        linear, top, most = map(max, zip(*found, strict=True))
        # A map may end at its own densest cell, which is no round value for a legend where another has denser ones.
        return Colours(Ends(linear, float(f"{top:.2g}") if most > top else top, most), signed=False)


def choose_steps(steps: Sequence[Served]) -> list[Served]:
    """Return the steps of a series that make its scale: all of them, or of very many some, evenly spread."""
    most = max(2, _MOST_OF_SERIES // steps[0].release.domain.size)
    return [steps[at] for at in sorted(set(np.linspace(0, len(steps) - 1, most).round().astype(int).tolist()))]
