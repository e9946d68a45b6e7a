"""`publish --sorted`, `query --quantiles` and `quantile`, in process, end to end."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.kinds import SortedRelease
from deltahist.kinds.quantile import PointsAround

AGES = np.random.default_rng(1).gamma(4, 9, 2000)


@pytest.fixture
def folder(tmp_path):
    pd.DataFrame({"id": np.arange(2000) % 700, "age": AGES}).to_csv(tmp_path / "ages.csv", index=False)
    return tmp_path


def publish(folder, *more):
    line = ["publish", folder / "ages.csv", "--x", "age", "--bounds", "0,150", "--delta", "1"]
    line += ["--sorted", "--overwrite"]
    return main([str(part) for part in [*line, "--out", folder / "ages.parquet", *more]])


def quantile(folder, *more):
    line = ["quantile", folder / "ages.csv", "--x", "age", "--q", "0.5", "--bounds", "0,150", "--delta", "1"]
    return main([str(part) for part in [*line, *more]])


def test_from_a_table_to_quantiles(folder, capsys):
    assert publish(folder, "--epsilon", "1") == 0
    said = capsys.readouterr()
    assert "2,000 points" in said.out
    assert "2,000 rows read" in said.err
    assert main(["query", str(folder / "ages.parquet"), "--quantiles", "0.25,0.5", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for row, q in zip(found, (0.25, 0.5), strict=True):
        assert row["low"] <= np.quantile(AGES, q) <= row["high"]
        assert row["high"] - row["low"] < 8
    assert main(["query", str(folder / "ages.parquet"), "--box", "20,40"]) == 0
    line = capsys.readouterr().out.splitlines()[-1].split()
    low, high = (float(v.replace(",", "")) for v in line[-2:])
    assert low <= ((AGES > 20) & (AGES < 40)).sum() <= high
    assert main(["inspect", str(folder / "ages.parquet")]) == 0
    assert "sorted coordinates" in capsys.readouterr().out
    assert main(["query", str(folder / "ages.parquet"), "--quantiles", "0.5", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("q,estimate,low,high\n0.5,")
    assert main(["query", str(folder / "ages.parquet"), "--quantiles", "0.5"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["q", "estimate", "low", "high"]


def test_users_entry_and_groups(folder, capsys):
    assert publish(folder, "--rho", "0.5", "--user", "id", "--max-per-user", "2", "--group", "5") == 0
    release = SortedRelease.load(folder / "ages.parquet")
    assert (release.mechanism.number, release.mechanism.group, release.contributions) == (1400, 5, 2)
    assert publish(folder, "--epsilon", "1", "--sources", "left", "--most", "3000") == 0
    assert "3,000 places for points" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--epsilon", "1", "--strategy", "flow"], "--strategy is given with --sorted"),
        (["--epsilon", "1", "--outside", "drop", "--sources", "boundary"], "--outside is given with --sorted"),
        (["--epsilon", "1", "--drop-bad-rows"], "--drop-bad-rows is given with --sorted"),
        (["--epsilon", "1", "--most", "9"], "--most is 9 with fixed membership"),
        (["--epsilon", "1", "--sources", "left"], "--most is missing"),
        (["--epsilon", "1", "--sources", "left", "--most", "7"], "more points"),
        (["--epsilon", "1", "--sources", "boundary"], "parked at one end"),
        (["--epsilon", "1", "--group", "x"], "--group is 'x'"),
        ([], "neither --epsilon nor --rho"),
    ],
)
def test_bad_options_leave_no_file(folder, capsys, more, message):
    assert publish(folder, *more) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "ages.parquet").exists()


def test_what_sorted_points_are_not_for(folder, capsys):
    publish(folder, "--epsilon", "1")
    assert main(["export", str(folder / "ages.parquet"), "--out", str(folder / "x.csv")]) == 2
    assert "holds no counts but" in capsys.readouterr().err
    for more, message in (
        (["--quantiles", "0.5,a"], "--quantiles is 'a'"),
        (["--quantiles", "0.5", "--box", "1,2"], "missing or double"),
        (["--quantiles", "0.5", "--format", "geojson"], "the form is 'geojson'"),
    ):
        assert main(["query", str(folder / "ages.parquet"), *more]) == 2
        assert message in capsys.readouterr().err
    counts = ["publish", folder / "ages.csv", "--x", "age", "--bounds", "0,150", "--delta", "1", "--epsilon", "1"]
    assert main([str(part) for part in [*counts, "--out", folder / "counts.parquet"]]) == 0
    assert main(["query", str(folder / "counts.parquet"), "--quantiles", "0.5"]) == 2
    assert "this one holds counts" in capsys.readouterr().err
    assert main([str(part) for part in [*counts, "--group", "3", "--out", folder / "other.parquet"]]) == 2
    assert "without --sorted" in capsys.readouterr().err


def test_a_quantile(folder, capsys):
    assert quantile(folder, "--epsilon", "2", "--compare", "--out", folder / "median.json") == 0
    said = capsys.readouterr().out
    assert abs(float(said.split()[0]) - np.median(AGES)) < 2
    assert said.splitlines()[3].split()[0] == "inverse"
    written = json.loads((folder / "median.json").read_text())
    assert written["value"] == pytest.approx(float(said.split()[0]))
    assert written["number"] == 2000
    assert quantile(folder, "--epsilon", "2", "--probability", "1e-6", "--method", "smooth-laplace") == 0
    assert "but for 1e-06" in capsys.readouterr().out
    assert quantile(folder, "--rho", "0.5", "--user", "id", "--max-per-user", "1") == 0
    assert "of 700" in capsys.readouterr().out


def test_a_quantile_of_users_has_the_noise_of_all_their_points(folder, capsys, monkeypatch):
    """What is drawn for three points of each user is what the library draws for contributions=3."""
    drawn, smooth = [], PointsAround.smooth
    monkeypatch.setattr(PointsAround, "smooth", lambda *given, **more: drawn.append(given) or smooth(*given, **more))
    line = ["--epsilon", "1", "--user", "id", "--max-per-user", "3", "--method", "smooth-student"]
    assert quantile(folder, *line, "--out", folder / "q.json") == 0
    assert "for each user (3 points)" in capsys.readouterr().out
    said = json.loads((folder / "q.json").read_text())
    assert (said["contributions"], said["unit"]) == (3, "user")
    ((*_, points),) = drawn
    assert points == 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--epsilon", "1", "--q", "2"], "--q is 2:"),
        (["--epsilon", "1", "--q", "half"], "--q is 'half'"),
        (["--epsilon", "1", "--method", "mean"], "'mean': it must be one of 'auto', 'inverse', "),
        (["--epsilon", "1", "--bounds", "0,0,1,1"], "takes two, LO,HI"),
        (["--epsilon", "1", "--x", "size"], "size"),
        (["--rho", "1", "--method", "smooth-student"], "smooth-student takes epsilon"),
        ([], "neither"),
    ],
)
def test_bad_questions(folder, capsys, more, message):
    assert quantile(folder, *more) == 2
    assert message in capsys.readouterr().err


def test_rows_of_a_condition(folder, capsys):
    """How many rows meet it is public, as the number of points always is here."""
    few = np.arange(2000) % 700 < 100
    assert publish(folder, "--epsilon", "1", "--where", "id < 100") == 0
    said = capsys.readouterr()
    assert f"{(~few).sum():,} rows left out that are not id < 100" in said.err
    assert f"{few.sum()} points" in said.out
    assert dh.load(folder / "ages.parquet").counting.where == "id < 100"
    assert publish(folder, "--epsilon", "1", "--where", "age < 100") == 2
    assert "'age' says where a point is" in capsys.readouterr().err


def test_a_quantile_with_decimal_commas_from_standard_input(folder, capsys, monkeypatch):
    text = pd.DataFrame({"age": AGES}).to_csv(index=False, decimal=",")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    line = "quantile - --x age --q 0.5 --bounds 0,150 --delta 1 --epsilon 1 --decimal ,"
    assert main(line.split()) == 0
    assert abs(float(capsys.readouterr().out.split()[0]) - np.quantile(AGES, 0.5)) < 8
