"""experiments/nonnegative_intervals.py: what it counts, what it marks, and a reduced run, end to end."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deltahist.decode import Posterior
from experiments import _maps as maps, nonnegative_intervals as intervals

FLOW = intervals.CASES[0]


def boxes(**changed) -> pd.DataFrame:
    """A hundred boxes of one release, as they should be."""
    base = {
        "release": 0,
        "fell back": False,
        "seconds": 2.0,
        "area": 4,
        "count": 5.0,
        "held": np.arange(100) > 3,
    }
    rest = {"width": 3.0, "unbiased width": 6.0, "off": 1.0, "unbiased off": 4.0, "nearest off": 2.0}
    return pd.DataFrame(base | rest | changed, index=range(100))


def measured(frame: pd.DataFrame) -> intervals.Measured:
    return intervals.Measured("a map", FLOW, list(intervals.summary(frame)))


def test_figures_are_ratios_over_all_boxes():
    found = measured(
        boxes(off=[3.0] + [1.0] * 99, seconds=[2.0] * 50 + [4.0] * 50, release=[0] * 50 + [1] * 50)
    )
    whole = found.figures[0]
    assert whole["coverage"] == 0.96
    assert whole["width"] == 0.5
    assert whole["error / nearest"] == pytest.approx(math.sqrt((9 + 99) / 100) / 2)
    assert whole["error / unbiased"] == pytest.approx(math.sqrt((9 + 99) / 100) / 4)
    assert (whole["boxes"], whole["releases"], whole["fell back"], whole["seconds"]) == (100, 2, 0, 3.0)
    assert found.missed == set()
    assert "**" not in "".join(found.printed.values())
    assert measured(boxes(width=3.92, off=2.0204)).missed == set()  # 0.65 and 1.010, as they are printed


@pytest.mark.parametrize(
    ("changed", "column", "text"),
    [
        ({"held": np.arange(100) > 6}, "coverage", "**93.0%**"),
        ({"held": True}, "coverage", "**100.0%**"),
        ({"width": 4.0}, "width", "**0.67**"),
        ({"off": 2.1}, "error / nearest", "**1.050**"),
    ],
)
def test_what_misses_an_aim_is_bold(changed, column, text):
    found = measured(boxes(**changed))
    assert found.missed == {column}
    assert found.printed[column] == text


@pytest.mark.parametrize(
    ("column", "inside", "name"),
    [("area", 31, "8-31"), ("area", 5_000, "2,048+"), ("count", 0.0, "0"), ("count", 10_000.0, "10,000+")],
)
def test_the_lowest_bin_is_found_if_it_holds_enough_boxes(column, inside, name):
    held = np.repeat([False, True], [5, 65])
    few = boxes()
    more = pd.concat([few, boxes(**{column: inside, "held": True})[:70].assign(held=held)])
    found = measured(more)
    assert found.lowest(column) == (65 / 70, name)
    assert found.missed == {f"lowest by {column}"}
    assert found.printed[f"lowest by {column}"] == f"**92.9% ({name})**"
    assert measured(more[: 100 + intervals.FEWEST - 1]).lowest(column)[1] != name
    # In the file it stands all the same.
    assert name in [row["bin"] for row in measured(more[:101]).rows]


def counted(release_of: intervals.Case) -> intervals.Measured:
    counts = maps.cities(16, np.random.default_rng(1))
    frame = intervals.measured(release_of.mechanism(16), counts, 2, 400, lambda number: None)
    return intervals.Measured("cities", release_of, list(intervals.summary(frame)))


def test_intervals_that_are_too_narrow_are_found(monkeypatch):
    right = counted(FLOW).figures[0]
    assert right["coverage"] >= 0.93
    assert (right["boxes"], right["fell back"]) == (800, 0)
    whole = Posterior.interval

    def narrow(self, estimate, variance, level):
        return whole(self, estimate, variance / 9, level)

    monkeypatch.setattr(Posterior, "interval", narrow)
    found = counted(FLOW)
    assert found.figures[0]["coverage"] < right["coverage"] - 0.1
    assert "coverage" in found.missed


def test_public_data_are_read_where_they_are(tmp_path: Path):
    file = tmp_path / maps.HISTOGRAMS["cabs"]
    file.parent.mkdir()
    np.save(file, np.ones((256, 256)))
    check_ins = tmp_path / maps.CHECK_INS
    check_ins.parent.mkdir()
    rows = [(40.75, -73.98)] * 3 + [(40.60, -74.10), (51.5, 0.0)]  # the last is not in New York
    pd.DataFrame([(1, "2010-08-01T00:00:00Z", lat, lon, 5) for lat, lon in rows]).to_csv(
        check_ins, sep="\t", header=False, index=False
    )
    found = dict(maps.public(tmp_path, 64))
    assert list(found) == ["cabs", "check-ins"]
    assert (found["cabs"] == 16).all()
    assert (found["check-ins"].sum(), found["check-ins"].max()) == (4, 3)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (["--data", "nowhere"], "'nowhere' holds none of dpbench_2d_hist/twitter_256_256.npy"),
        (["--releases", "0"], "--releases is 0: it must be 1 or more"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, capsys, line, text):
    with pytest.raises(SystemExit):
        intervals.main(["--small", "--out", str(tmp_path), *line])
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_reduced_run_prints_a_table_that_can_be_pasted(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(intervals, "CASES", intervals.CASES[::5])
    monkeypatch.setattr(intervals, "SMALL_MAPS", 1)
    file = tmp_path / "data" / maps.HISTOGRAMS["Twitter"]
    file.parent.mkdir(parents=True)
    np.save(file, np.random.default_rng(1).poisson(0.1, (256, 256)))
    intervals.main(["--small", "--out", str(tmp_path), "--data", str(tmp_path / "data"), "--releases", "2"])
    header, rule, *rows = (line for line in capsys.readouterr().out.splitlines() if line.startswith("|"))
    assert header.startswith("| set | strategy | coverage | lowest by area | lowest by count | width |")
    assert rule == "|" + " --- |" * header.count(" |")
    assert [row.split(" | ")[:2] for row in rows] == [
        [f"| {name}", strategy]
        for name in ("Twitter", "round cities")
        for strategy in ("flow", "identity (not promised)")
    ]
    assert all(" of 2 | " in row for row in rows)
    assert (tmp_path / "nonnegative_intervals.png").read_bytes()[:4] == b"\x89PNG"
