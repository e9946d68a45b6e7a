"""2014, Figure 1: greedy augmentation adds the shifted squares at no cost.

Bins are vertices and neighbours differ by one along one axis (the paper's example; points on a plane also move
diagonally). The base counts the aligned 2 × 2 squares. Among all 2 × 2 squares, the greedy algorithm of section 5.3
adds exactly those shifted by one along both axes. The sensitivity stays 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import deltahist as dh
from deltahist.space.workloads import range_gram
from deltahist.strategies.grids import choose_greedy_rows
from experiments._common import BLUE, RED, Found, command, figure, save, write_csv

Corner = tuple[int, int]


def moves(n: int) -> NDArray[np.int64]:
    """Return the edges (M, 2) of the n × n grid graph, as flat indices."""
    index = np.arange(n * n).reshape(n, n)
    along = np.column_stack([index[:-1].ravel(), index[1:].ravel()])
    across = np.column_stack([index[:, :-1].ravel(), index[:, 1:].ravel()])
    return np.concatenate([along, across])


def incidence(n: int) -> scipy.sparse.csc_array:
    """Return E (n², M): −1 where an edge starts and +1 where it ends."""
    ends = moves(n)
    column = np.arange(len(ends))
    values = np.repeat(np.array([-1, 1]), len(ends))
    return scipy.sparse.csc_array((values, (ends.T.ravel(), np.tile(column, 2))), shape=(n * n, len(ends)))


def squares(n: int, corners: Sequence[Corner]) -> NDArray[np.int64]:
    """Return one binary row per 2 × 2 square, given its lower left bin."""
    index = np.arange(n * n).reshape(n, n)
    rows = np.zeros((len(corners), n * n), dtype=np.int64)
    for row, (i, j) in zip(rows, corners, strict=True):
        row[index[i : i + 2, j : j + 2].ravel()] = 1
    return rows


def sensitivity(rows: NDArray[np.int64], edges: scipy.sparse.csc_array) -> int:
    """Return the largest number of rows that cut one edge."""
    return int(np.abs(rows @ edges).sum(axis=0).max())


def run(out: Path, small: bool) -> Found:
    """Augment the base, check the result, and write figure1.csv and figure1.png."""
    n = 8 if small else 12
    base = [(i, j) for i in range(0, n, 2) for j in range(0, n, 2)]
    candidates = [(i, j) for i in range(n - 1) for j in range(n - 1)]
    gram = range_gram(dh.Domain((0, 0, 1, 1), (n, n)))
    order = choose_greedy_rows(squares(n, base), incidence(n), squares(n, candidates), gram)
    added = [candidates[k] for k in order]
    rows: list[dict[str, object]] = [{"square": "base", "x": i, "y": j} for i, j in base]
    rows += [{"square": "added", "x": i, "y": j} for i, j in added]
    write_csv(out / "figure1.csv", rows)
    before = sensitivity(squares(n, base), incidence(n))
    after = sensitivity(squares(n, [*base, *added]), incidence(n))
    expected = {(i, j) for i in range(1, n - 1, 2) for j in range(1, n - 1, 2)}
    _draw(n, base, added, f"sensitivity {before} before, {after} after", out / "figure1.png")
    return {
        "squares added": f"{len(added)} of {len(candidates)} offered",
        "exactly those shifted by one along both axes": len(added) == len(expected) and set(added) == expected,
        "sensitivity before and after": f"{before} and {after}",
    }


def _draw(n: int, base: Sequence[Corner], added: Sequence[Corner], what: str, file: Path) -> None:
    from matplotlib.patches import Rectangle

    drawn = figure(6.8, 7.4)
    axes = drawn.subplots()
    for u, v in moves(n).tolist():
        axes.plot([u // n, v // n], [u % n, v % n], ":", color=RED, linewidth=1, zorder=1)
    place = np.arange(n * n)
    axes.plot(place // n, place % n, "o", color=BLUE, markersize=4.5, zorder=3)
    # Draw the two kinds at slightly different sizes, so that their sides do not hide each other.
    for corners, margin, colour, line, label in (
        (base, 0.28, BLUE, "-", "base: solid squares"),
        (added, 0.18, "black", "--", "added by the algorithm"),
    ):
        side = 1 + 2 * margin
        for number, (i, j) in enumerate(corners):
            patch = Rectangle((i - margin, j - margin), side, side, fill=False, zorder=2)
            patch.set(edgecolor=colour, linestyle=line, linewidth=1.6, label="_" if number else label)
            axes.add_patch(patch)
    axes.plot([], [], ":", color=RED, label="neighbours")
    axes.set(xlim=(-0.7, n - 0.3), ylim=(-0.7, n - 0.3), aspect="equal", xlabel="bin i", ylabel="bin j")
    axes.set_title(f"{len(added)} squares added to {len(base)}: {what}")
    drawn.legend(loc="outside lower center", ncols=3, fontsize=9)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
