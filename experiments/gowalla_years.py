"""Compare years of daily maps at a constant budget per window with one budget for all days.

`python -m experiments.gowalla_years [--data FILE] [--small] [--out DIR]`. FILE is gowalla_events.tsv.gz
(docs/internals/experiments.md). Without it, check-ins are invented.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import deltahist as dh
from deltahist.counting import count_file
from deltahist.planning import mechanism_for
from deltahist.preprocessing import Clock
from experiments._common import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Found,
    figure,
    parser_of,
    print_found,
    print_table,
    save,
    write_csv,
)

BOUNDS, CELL, DELTA = (563_000, 4_480_000, 613_000, 4_532_000), "5km", "5km"
START, UNTIL, LENGTH, EPSILON = "2009-04-01", "2010-10-22", 7, Fraction(1)
#: The side of the random squares in cells, and their number. They are the same every day.
SIDE, BOXES = 2, 60


def invent_checkins(file: Path, days: int) -> Path:
    """Write invented check-ins of 200 users: user, time, latitude, longitude and place."""
    rng = np.random.default_rng(1)
    number = 60 * days
    times = np.datetime64(f"{START}T12:00:00") + np.timedelta64(1, "D") * rng.integers(0, days, number)
    places = (40.7, -74) + 0.1 * rng.random((number, 2))
    lines = (f"{rng.integers(200)}\t{time}Z\t{y:.5f}\t{x:.5f}\t0\n" for time, (y, x) in zip(times, places, strict=True))
    file.write_text("".join(lines))
    return file


def run(out: Path, small: bool, data: Path | None = None) -> Found:
    """Write gowalla_years.csv (a row per month) and gowalla_years.png."""
    domain = dh.Domain(BOUNDS, cell=CELL, crs="EPSG:32618")
    near = dh.Neighbourhood(domain, DELTA, sources="boundary")
    clock = Clock.of(START, "1d")
    days = 2 * LENGTH if small else clock.step(UNTIL) + 1
    if data is None:
        data = invent_checkins(out / "checkins.tsv", days)
    # Keep one check-in per user and day: a user's sequence has one element per step.
    stepped = count_file(
        data, domain, clock=clock, steps=days, time=1, x=3, y=2, crs="EPSG:4326", user=0, max_per_user=1
    )
    window = dh.accounts.Window(length=LENGTH, epsilon=EPSILON)
    # Choose the strategy for one day's share, using only public figures.
    by_window = mechanism_for(near, epsilon=window.equal_share).strategy
    once = Fraction(EPSILON, days)
    by_day = mechanism_for(near, epsilon=once).strategy
    rng = np.random.default_rng(11)
    corner = rng.integers(0, np.array(domain.shape) - SIDE, (BOXES, 2)) * np.array(domain.cell) + domain.low
    work = dh.workloads.boxes(np.column_stack([corner, corner + SIDE * np.array(domain.cell)]))
    month, errors, counts, plain = [], [], [], []
    for day in range(days):
        true = stepped.counts_of(day).array
        exact = _answers(true, work, domain)
        sustained = dh.publish(true, near, by_window, epsilon=window.charge(day, window.equal_share), rng=rng)
        shared = dh.publish(true, near, by_day, epsilon=once, rng=rng)
        errors.append([((_answers(r.cells(), work, domain) - exact) ** 2).mean() for r in (sustained, shared)])
        plain.append(_answers(sustained.cells(), work, domain) - exact)
        counts.append((int(true.sum()), float((exact**2).mean())))
        month.append(clock.label(day)[:7])
    squares, sizes = np.array(errors), np.array(counts)
    rows: list[dict[str, object]] = []
    for name in dict.fromkeys(month):
        held = np.array([m == name for m in month])
        rows.append(
            {
                "month": name,
                "days": int(held.sum()),
                "check-ins a day": float(sizes[held, 0].mean()),
                "rms count of a box": float(np.sqrt(sizes[held, 1].mean())),
                "rmse, window": float(np.sqrt(squares[held, 0].mean())),
                # Average over many days, because the errors of unbiased estimates average out.
                "rmse of the month's mean, window": float(np.sqrt((np.array(plain)[held].mean(axis=0) ** 2).mean())),
                "rmse, one budget": float(np.sqrt(squares[held, 1].mean())),
            }
        )
    write_csv(out / "gowalla_years.csv", rows)
    print_table(rows)
    _draw(rows, days, out / "gowalla_years.png")
    whole = np.sqrt(squares.mean(axis=0))
    return {
        "days published": days,
        f"ε of every window of {LENGTH} days, for ever": float(EPSILON),
        "ε of these days by sequential composition": float(window.equal_share * days),
        f"rmse of a box of {SIDE} × {SIDE} cells, window": float(whole[0]),
        "rmse, one budget of ε = 1 for all days": float(whole[1]),
        "rms count of a box": float(np.sqrt(sizes[:, 1].mean())),
    }


def _answers(cells: NDArray[np.float64], work: dh.workloads.Boxes, domain: dh.Domain) -> NDArray[np.float64]:
    from deltahist.space.workloads import prefix_sums, sums_between

    return np.asarray(sums_between(prefix_sums(np.asarray(cells, dtype=np.float64)), work.spans(domain)))


def _draw(rows: Sequence[dict[str, object]], days: int, file: Path) -> None:
    drawn = figure(9, 4.6)
    axes = drawn.subplots()
    place = np.arange(len(rows))
    for name, colour, label in (
        ("rms count of a box", GREY, "true count (root mean square)"),
        ("rmse, one budget", ORANGE, f"error, ε = 1 for all {days} days"),
        ("rmse, window", BLUE, f"error, ε = 1 for every {LENGTH} days"),
        ("rmse of the month's mean, window", GREEN, "the same, mean of the month"),
    ):
        axes.plot(place, [float(str(r[name])) for r in rows], "o-", color=colour, markersize=4, label=label)
    axes.set_xticks(place, [str(r["month"]) for r in rows], rotation=45, ha="right", fontsize=8)
    axes.set(yscale="log", ylabel="points per day in a box of 10 × 10 km", title="daily maps of check-ins in New York")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, metavar="FILE", help="a file of user, UTC time, latitude and longitude")
    chosen = parser.parse_args(arguments)
    print_found(run(chosen.out, chosen.small, chosen.data))


if __name__ == "__main__":
    main()
