"""Publish a map that outgrows memory: its values are measured, drawn and written slab by slab."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltahist._files import write_whole
from deltahist._progress import progress
from deltahist.accounts.window import Account
from deltahist.counting.sparse import SparseCounts, slab_of
from deltahist.mechanisms import Mechanism
from deltahist.noise.blocks import BlockDraws
from deltahist.releases import TiledRelease
from deltahist.strategies.tiles import Integers


def publish_tiles(
    counts: NDArray[np.int64] | SparseCounts,
    mechanism: Mechanism,
    total: int | None,
    out: Path,
    *,
    account: Account | None,
    rng: np.random.Generator | None,
) -> TiledRelease:
    """Charge the account, then write each tile's noisy values to a file: it appears whole or not at all.

    Everything that may be refused was checked before, but for the file: what has been charged stays so if it cannot be
    written.
    """

    def write(part: Path) -> None:
        payment = None if account is None else account.pay(mechanism.guarantee)
        parts = _values(counts, mechanism, rng)
        TiledRelease.write_parts(
            part, mechanism, parts, total=total, payment=payment, publishable=rng is None
        )

    write_whole(out, write)
    return TiledRelease.load(out)


def _values(
    counts: NDArray[np.int64] | SparseCounts, mechanism: Mechanism, rng: np.random.Generator | None
) -> Iterator[Integers]:
    """Yield the noisy values of each tile in turn, and at last any that are kept whole."""
    tiling = mechanism.strategy.tiling()
    draws = BlockDraws(mechanism.laws, rng)
    top = tiling.noise_of_top(draws)
    with ThreadPoolExecutor(1) as ahead, progress("drawing tiles", tiling.shape[0]) as advance:
        noise = tiling.noise(draws)
        coming = ahead.submit(next, noise)
        for slab in range(tiling.shape[0]):
            values = coming.result()
            if slab + 1 < tiling.shape[0]:  # drawn while this one is written
                coming = ahead.submit(next, noise)
            exact = slab_of(counts, tiling.cells((slab, 0))[0])
            top += tiling.measure_top(slab, exact)
            for noisy, measured in zip(values, tiling.measure(slab, exact), strict=True):
                noisy += measured
            del exact, measured
            yield from tiling.cut(slab, values)
            advance(1)
    if len(top):
        yield top
