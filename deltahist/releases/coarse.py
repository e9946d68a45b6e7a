"""A map in tiles as pictures show it: in blocks of cells, from the sums beside the release."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode import Decoder, Moments
from deltahist.errors import InputError
from deltahist.mechanisms import Mechanism
from deltahist.releases.tables import UNBIASED
from deltahist.space.domain import Domain
from deltahist.space.workloads import Boxes

if TYPE_CHECKING:
    from deltahist.releases.tiled import TiledRelease

Field = NDArray[np.float64]
#: Blocks along the longer side of a picture, at most.
MOST_BLOCKS = 1024


@dataclass(frozen=True, eq=False)
class CoarseMap:
    """Blocks of a map's cells, a power of two wide, with the estimates and errors of the map itself.

    Its domain reaches beyond the map where a last block does, which then has the points of the cells it has.

    Parameters
    ----------
    release : in tiles. width : of a block, in cells.
    """

    release: TiledRelease
    width: int

    @classmethod
    def of(cls, release: TiledRelease) -> CoarseMap:
        """Make the finest map of at most `MOST_BLOCKS` blocks a side."""
        width = 1
        while -(-max(release.domain.shape) // width) > MOST_BLOCKS:
            width *= 2
        return cls(release, width)

    @property
    def words(self) -> str:
        """A block, in words."""
        return f"block of {self.width} × {self.width} cells"

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of the map."""
        return self.release.mechanism

    @functools.cached_property
    def domain(self) -> Domain:
        """The domain whose cells are blocks."""
        own = self.release.domain
        shape = tuple(-(-n // self.width) for n in own.shape)
        sides = zip(own.low, own.cell, shape, strict=True)
        high = [low + cell * self.width * blocks for low, cell, blocks in sides]
        return replace(own, bounds=(*own.low, *high), shape=shape)

    @property
    def decoder(self) -> BlockErrors:
        """Errors of boxes of blocks."""
        return BlockErrors(self.domain, self.release.decoder)

    def cells(self, *, nonnegative: bool = False) -> Field:
        """Return unbiased estimates of all blocks (domain.shape)."""
        edges = [np.minimum(np.arange(m + 1) * self.width, n) for m, n in self._sides]
        whole, parts = self.release.sums.up_to(*np.meshgrid(*edges, indexing="ij"))
        found = sum(np.diff(np.diff(each, axis=0), axis=1) for each in (*parts, whole))
        return np.asarray(found, dtype=np.float64)

    @property
    def _sides(self) -> list[tuple[int, int]]:
        return list(zip(self.domain.shape, self.release.domain.shape, strict=True))

    def answers(self, work: Boxes, *, level: float, nonnegative: bool = False) -> dict[str, NDArray[Any]]:
        """Return answers to boxes, of the part of each that lies on the map."""
        return self.release.answers(clip(work, self.release.domain), level=level, nonnegative=nonnegative)

    def estimator(self, nonnegative: bool) -> str:
        """Return the name of the estimates."""
        return UNBIASED

    def draws_nonnegative(self, asked: bool | None = None) -> bool:
        """Return that estimates are unbiased; InputError if others are asked for."""
        if asked:
            raise InputError(
                "nonnegative is asked of a map in tiles, whose estimates are unbiased only: leave it out"
            )
        return False


@dataclass(frozen=True, eq=False)
class BlockErrors:
    """Errors of boxes on a map of blocks, as the cells' own decoder tells them.

    Parameters
    ----------
    domain : of blocks, which may reach beyond that of the cells. cells : their decoder.
    """

    domain: Domain
    cells: Decoder

    def moments(self, work: Boxes) -> Moments:
        """Return the moments of boxes, of the part of each that lies on the map."""
        return self.cells.moments(clip(work, self.cells.domain))


def clip(work: Boxes, domain: Domain) -> Boxes:
    """Return the parts of boxes that lie on a map."""
    return Boxes(np.clip(work.corners, [*domain.low, *domain.low], [*domain.high, *domain.high]))
