"""Every script runs small, finds its main figures, and writes CSV and PNG files."""

from __future__ import annotations

import csv
import functools
import importlib
from pathlib import Path

import pytest

import experiments
from experiments import SCRIPTS, districts, ego_network, gowalla_years, series_places


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A function that runs a script small, once, and gives its folder."""
    base = tmp_path_factory.mktemp("experiments")

    @functools.cache
    def run(name):
        importlib.import_module(f"experiments.{name}").main(["--small", "--out", str(base / name)])
        return base / name

    return run


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(results, name):
    return rows(results(name.removesuffix("_search").removesuffix("_errors")) / f"{name}.csv")


#: Small runs of about a second and more; what their figures show is tested with them.
LONG = (
    "compare_peers", "figure3", "figure4", "figure5", "figure6", "figure8", "flow_squares", "gradual_city", "live_city",
    "proximity_network", "sample_paths", "table5",
)  # fmt: skip
#: Scripts with a test of their own.
OTHERS = ("compare_2d", "districts", "ego_network", "gowalla_years", "series_places")


def test_all_scripts_are_run():
    files = {file.stem for file in Path(experiments.__file__).parent.glob("[!_]*.py")}
    assert sorted(files) == sorted(SCRIPTS)
    assert {*OTHERS, *LONG} < files


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in SCRIPTS if n not in OTHERS]
)
def test_the_picture_and_the_table_are_written(results, name):
    rows = table(results, name)
    assert rows
    assert all(None not in [*row, *row.values()] for row in rows)
    data = (results(name) / f"{name}.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(data) > 15_000


def test_tables_1_and_2_simulated_variances_are_the_exact_ones(results):
    for row in table(results, "table1_2"):
        # 20,000 repetitions: the relative standard error of a variance is at most √(6.7 / 20,000) = 1.8 %.
        assert float(row["simulated"]) == pytest.approx(float(row["exact, discrete"]), rel=0.08)
        assert float(row["exact, discrete"]) < float(row["exact, continuous"])


def test_table_3(results):
    rows = table(results, "table3")
    for name in ("I_4", "C_4"):
        for row in rows[:4]:  # the paper prints the worst range of each size
            assert float(row[f"{name} printed"]) == float(row[f"{name} worst"])
    total = {
        name: float(value) for name, value in rows[4].items() if name.startswith(("I_4 e", "I_4 d", "C_4 e", "C_4 d"))
    }
    assert total["C_4 exact"] == pytest.approx(32, abs=0.01)
    assert total["I_4 exact"] == pytest.approx(160, abs=0.01)
    assert total["C_4 discrete"] == pytest.approx(29.46, abs=0.01)
    assert total["I_4 discrete"] == pytest.approx(156.71, abs=0.01)


def test_table_3_the_optimum(results):
    left, unused, public = table(results, "table3_search")
    assert (left["smallest total"], left["attained by sets"]) == ("32.0", "1")
    assert left["for example"].split() == ["0001", "0011", "0111", "1111"]  # C_4
    assert (unused["smallest total"], unused["attained by sets"]) == ("32.0", "2")
    assert public["smallest total"] == "24.0"


def test_table_4(results):
    for row in table(results, "table4"):
        fitted, right = (float(row["fitted"]), float(row["printed"][-1]))  # "1; should be 2" ends in the right one
        assert fitted == pytest.approx(right, abs=0.6 if row["power of"] == "log n" else 0.03)


def test_years_of_daily_maps(tmp_path):
    gowalla_years.main(["--small", "--out", str(tmp_path)])
    first = rows(tmp_path / "gowalla_years.csv")[0]
    assert float(first["rmse, window"]) < float(first["rmse, one budget"])


def test_a_bit_in_an_ego_network(tmp_path):
    ego_network.main(["--small", "--out", str(tmp_path)])
    for row in rows(tmp_path / "ego_network.csv"):
        for name in ("chain", "projection"):
            assert float(row[name]) == pytest.approx(float(row[f"{name}, law"]), abs=0.12)
        assert float(row["chain, law"]) > float(row["projection, law"])
    last = rows(tmp_path / "ego_coalitions.csv")[-1]
    assert float(last["independent"]) >= float(last["nearest"])


def test_a_reduced_run_keeps_its_promises(tmp_path: Path) -> None:
    found = districts.run(tmp_path, small=True)
    assert found["least coverage"] >= 0.92
    assert found["largest width over need"] <= 2.2
    assert found["mean error over even"] < 1.0
    assert found["least coverage of squares about points"] >= 0.92
    assert (tmp_path / "districts.csv").read_text().count("\n") > 3


def test_a_reduced_run_shows_that_places_come_back(tmp_path: Path) -> None:
    found = series_places.run(tmp_path, small=True)
    assert found["least coverage"] >= 0.95
    assert found["least coverage by chance"] <= 0.91
    assert (tmp_path / "series_places.csv").read_text().count("\n") == 3
