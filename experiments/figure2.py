"""2014, Figure 2: the matrices H_4, Y_4, I_4 and C_4, computed from the strategies.

Under H_4 the paper prints the identity; the hierarchy has seven rows. Y_4 is unnormalised Haar with its rows in
another order. The other two agree with the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import deltahist as dh
from experiments._common import Found, command, figure, save, write_csv

DOMAIN = dh.Domain((0, 1), (4,))
#: The matrices as printed in the paper.
PRINTED = {
    "H_4": np.eye(4, dtype=int),
    "Y_4": np.array([[0, 0, 1, -1], [1, -1, 0, 0], [1, 1, -1, -1], [1, 1, 1, 1]]),
    "I_4": np.eye(4, dtype=int),
    "C_4": np.triu(np.ones((4, 4), dtype=int)),
}


def matrices() -> dict[str, NDArray[np.int64]]:
    """Return the rows of the four strategies."""
    kinds = dh.strategies
    made = (kinds.Hierarchical(DOMAIN), kinds.Wavelet(DOMAIN), kinds.Identity(DOMAIN), kinds.Cumulative(DOMAIN))
    return {name: A.matrix().toarray() for name, A in zip(PRINTED, made, strict=True)}


def verdict(name: str, rows: NDArray[np.int64]) -> str:
    """Describe how the computed matrix relates to the printed one."""
    if np.array_equal(rows, PRINTED[name]):
        return "as printed"
    if sorted(rows.tolist()) == sorted(PRINTED[name].tolist()):
        return "as printed, in another order of rows"
    return "the paper prints the identity"


def run(out: Path, small: bool) -> Found:
    """Write figure2.csv and figure2.png."""
    made = matrices()
    rows = [
        {"matrix": name, "row": number, **{f"c{j + 1}": int(v) for j, v in enumerate(row)}}
        for name, matrix in made.items()
        for number, row in enumerate(matrix, start=1)
    ]
    write_csv(out / "figure2.csv", rows)
    found = {name: verdict(name, matrix) for name, matrix in made.items()}
    _draw(made, found, out / "figure2.png")
    return dict(found)


def _draw(made: dict[str, NDArray[np.int64]], found: dict[str, str], file: Path) -> None:
    drawn = figure(12, 4.8)
    panels = [(f"${n}$\n{_wrapped(found[n])}", m) for n, m in made.items()]
    panels.insert(1, ("$H_4$ on the printed page\n(a misprint)\n", PRINTED["H_4"]))
    for axes, (title, matrix) in zip(drawn.subplots(1, 5), panels, strict=True):
        axes.imshow(matrix, cmap="RdBu", vmin=-1.6, vmax=1.6)
        for (i, j), value in np.ndenumerate(matrix):
            strong = "white" if value else "#555555"
            axes.text(j, i, str(value).replace("-", "−"), ha="center", va="center", color=strong)
        axes.set_xticks(range(4), ["$c_1$", "$c_2$", "$c_3$", "$c_4$"])
        axes.set_yticks(range(len(matrix)), [str(i + 1) for i in range(len(matrix))])
        axes.set_title(title, fontsize=10)
        axes.set(xlabel="count", ylabel="row")
        axes.set_ylim(6.5, -0.5)
    save(drawn, file)


def _wrapped(text: str) -> str:
    """Break a title into two lines, so that titles of neighbouring panels line up without touching."""
    first, _, rest = text.partition(", " if ", " in text else "prints ")
    return f"{first}prints\n{rest}" if "prints" in text else f"{first}\n{rest}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
