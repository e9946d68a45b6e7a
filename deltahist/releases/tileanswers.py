"""Answers of a release in tiles, from the sums in the file beside it (`deltahist.releases.tilesums`)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.placement import placement_variance
from deltahist.errors import InputError
from deltahist.releases.answerer import Answerer
from deltahist.space.workloads import BoxCover, Cover, RegionCover, Workload
from deltahist.space.workloads.cover import Pieces, in_parts, weights_of

if TYPE_CHECKING:
    from deltahist.releases.tiled import TiledRelease
    from deltahist.releases.tilesums import TileSums

Field = NDArray[np.float64]
#: Numbers that are read together: 12 for a box of whole cells, 48 for one that cuts cells.
_AT_A_TIME = 1 << 21
#: Cells that a box cuts, at most, where each is looked at: along longer rims the means of tiles stand for them.
_SHORT = 1 << 10


class TileAnswerer(Answerer):
    """Answers of a release in tiles: an `Answerer` whose sums are read, a few numbers for each query.

    Within a cell points count as evenly spread: a cell that a query cuts enters by its share of area alone, and
    `placement_error` is that of a law that was learnt so (`ClumpingInTiles`).
    """

    def __init__(self, release: TiledRelease) -> None:
        super().__init__(release)  # type: ignore[arg-type]

    def prepare(self) -> None:
        """Open the sums, and make the decoder's tables."""
        self.release.decoder.prepare()
        _ = self._unbiased

    @functools.cached_property
    def _unbiased(self) -> TileEstimates:  # type: ignore[override]
        return TileEstimates(self.release.sums)  # type: ignore[attr-defined]

    def answer(self, work: Workload, *, level: float, nonnegative: bool = False) -> dict[str, NDArray[Any]]:
        """Return answers as `Answerer.answer` does, unbiased.

        Raises InputError if non-negative estimates are asked for, too.
        """
        if nonnegative:
            raise InputError(
                "the release is a map in tiles, whose estimates are unbiased only: non-negative ones depend on all "
                "cells at once, which outgrow memory; ask without them"
            )
        return super().answer(work, level=level)


class TileEstimates:
    """Estimates of the cells of a release in tiles, summed over queries."""

    def __init__(self, sums: TileSums) -> None:
        self.sums = sums

    def over(self, cover: Cover) -> tuple[Field, Field, Field, Field]:
        """Return estimates of queries (m,); those with none, and with all of the points of the cells that they cut;
        and the variance of where these points lie.
        """
        if isinstance(cover, RegionCover):
            return self._by_cells(cover)
        assert isinstance(cover, BoxCover)
        if not len(cover.cut):
            return (np.zeros(0),) * 4
        parts = in_parts(np.full(len(cover.cut), 48 if cover.cut.any() else 12), _AT_A_TIME)
        found = [self._of_boxes(cover[some]) for some in parts]
        one, two, three, four = (np.concatenate(each) for each in zip(*found, strict=True))
        return one, two, three, four

    def _of_boxes(self, cover: BoxCover) -> tuple[Field, Field, Field, Field]:
        (west, east), (south, north) = cover.spans
        if not cover.cut.any():
            low, high = (np.stack(ends, axis=1).astype(np.int64) for ends in ((west, south), (east, north)))
            return (self.sums.rectangles(low, high),) * 3 + (np.zeros(len(cover.cut)),)
        x, y = pieces = [Pieces.of(*span) for span in cover.spans]
        edges = [np.stack([p.first, p.first + 1, p.last, p.last + 1]) for p in pieces]
        at = np.broadcast_arrays(edges[0][:, None], edges[1][None])
        whole, parts = self.sums.up_to(*at)
        spread = self.sums.spread_up_to(*at)
        # Sums of tiles have more digits than float64: so must their weights.
        weights = {
            kind: [weights_of(p, kind) for p in pieces] for kind in ("share", "whole", "touched", "square")
        }
        found = []
        for kind in ("share", "whole", "touched"):
            of_x, of_y = weights[kind]
            long_x, long_y = (each.astype(whole.dtype) for each in weights[kind])
            total = (long_x[:, None] * long_y[None] * whole).sum(axis=(0, 1))
            found.append((total + np.einsum("im,jm,pijm->m", of_x, of_y, parts)).astype(np.float64))
        shares, squares = (np.einsum("im,jm,ijm->m", *weights[kind], spread) for kind in ("share", "square"))
        misplaced = np.where(cover.cut, placement_variance(shares, squares), 0.0)
        wide, tall = (p.last + 1 - p.first for p in (x, y))
        short = np.flatnonzero(cover.cut & (2 * (wide + tall) <= _SHORT))
        if len(short):
            spans = tuple((low[short], high[short]) for low, high in cover.spans)
            misplaced[short] = self._misplaced(BoxCover(spans).listed(self.sums.tables.cells))
        return found[0], found[1], found[2], misplaced

    def _misplaced(self, cover: RegionCover) -> Field:
        return self._spread(cover, self.sums.cells_at(cover.x, cover.y))

    def _by_cells(self, cover: RegionCover) -> tuple[Field, Field, Field, Field]:
        inside = np.bincount(cover.whole, self.sums.rectangles(cover.low, cover.high), cover.number).astype(np.float64)
        if not len(cover.owner):
            return inside, inside, inside, np.zeros(cover.number)
        own = self.sums.cells_at(cover.x, cover.y)
        share, touched = (np.bincount(cover.owner, part, cover.number) for part in (cover.share * own, own))
        return inside + share, inside, inside + touched, self._spread(cover, own)

    def _spread(self, cover: RegionCover, own: Field) -> Field:
        """Return the variance of where points lie in the cells that queries cut (m,), from their estimates (k,)."""
        spread, share = self.sums.law.spread(own, self.sums.noise), cover.share
        one, two = (np.bincount(cover.owner, part * spread, cover.number) for part in (share, share**2))
        return placement_variance(one.astype(np.float64), two.astype(np.float64))
