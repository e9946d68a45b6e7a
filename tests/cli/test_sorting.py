"""`publish --sorted`, `query --quantiles` and `quantile`, in process, end to end."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
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
    return [*line, "--out", folder / "ages.parquet", *more]


def quantile(folder, *more):
    line = ["quantile", folder / "ages.csv", "--x", "age", "--q", "0.5", "--bounds", "0,150", "--delta", "1"]
    return [*line, *more]


def test_from_a_table_to_quantiles(folder, run):
    said = run(*publish(folder, "--epsilon", "1"))
    assert "2,000 points" in said.out
    assert "2,000 rows read" in said.err
    said = json.loads(run("query", folder / "ages.parquet", "--quantiles", "0.25,0.5", "--format", "json").out)
    assert (said["unit"], said["level"]) == ("units", 0.95)
    for row, q in zip(said["answers"], (0.25, 0.5), strict=True):
        assert row["low"] <= np.quantile(AGES, q) <= row["high"]
        assert row["high"] - row["low"] < 8
    line = run("query", folder / "ages.parquet", "--box", "20,40").out.splitlines()[2].split()
    low, high = (float(v.replace(",", "")) for v in line[-2:])
    assert low <= ((AGES > 20) & (AGES < 40)).sum() <= high
    assert "sorted coordinates" in run("statement", folder / "ages.parquet").out
    median = ["query", folder / "ages.parquet", "--quantiles", "0.5"]
    assert run(*median, "--format", "csv").out.startswith("q,estimate,low,high\n0.5,")
    assert run(*median).out.splitlines()[0].split() == ["q", "estimate", "low", "high"]


def test_users_entry_and_groups(folder, run):
    run(*publish(folder, "--rho", "0.5", "--user", "id", "--max-per-user", "2", "--group", "5"))
    release = SortedRelease.load(folder / "ages.parquet")
    assert (release.mechanism.number, release.mechanism.group, release.contributions) == (1400, 5, 2)
    said = run(*publish(folder, "--epsilon", "1", "--sources", "left", "--most", "3000")).out
    assert "3,000 places for points" in said


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
def test_bad_options_leave_no_file(folder, refused, more, message):
    refused(publish(folder, *more), message)
    assert not (folder / "ages.parquet").exists()


def test_what_sorted_points_are_not_for(folder, run, refused):
    run(*publish(folder, "--epsilon", "1"))
    refused(["export", folder / "ages.parquet", "--out", folder / "x.csv"], "holds no counts but")
    for more, message in (
        (["--quantiles", "0.5,a"], "--quantiles is 'a'"),
        (["--quantiles", "0.5", "--box", "1,2"], "missing or double"),
        (["--quantiles", "0.5", "--format", "geojson"], "the form is 'geojson'"),
    ):
        refused(["query", folder / "ages.parquet", *more], message)
    counts = ["publish", folder / "ages.csv", "--x", "age", "--bounds", "0,150", "--delta", "1", "--epsilon", "1"]
    run(*counts, "--out", folder / "counts.parquet")
    refused(["query", folder / "counts.parquet", "--quantiles", "0.5"], "this one holds counts")
    message = "without --sorted"
    refused([*counts, "--group", "3", "--out", folder / "other.parquet"], message)


def test_a_quantile(folder, run):
    said = run(*quantile(folder, "--epsilon", "2", "--compare", "--out", folder / "median.json")).out
    assert abs(float(said.split()[0]) - np.median(AGES)) < 2
    assert said.splitlines()[3].split()[0] == "inverse"
    written = json.loads((folder / "median.json").read_text())
    assert written["value"] == pytest.approx(float(said.split()[0]))
    assert written["number"] == 2000
    said = run(*quantile(folder, "--epsilon", "2", "--probability", "1e-6", "--method", "smooth-laplace")).out
    assert "but for 1e-06" in said
    assert "of 700" in run(*quantile(folder, "--rho", "0.5", "--user", "id", "--max-per-user", "1")).out


def test_a_quantile_of_users_has_the_noise_of_all_their_points(folder, run, monkeypatch):
    """What is drawn for three points of each user is what the library draws for contributions=3."""
    drawn, smooth = [], PointsAround.smooth
    monkeypatch.setattr(PointsAround, "smooth", lambda *given, **more: drawn.append(given) or smooth(*given, **more))
    line = ["--epsilon", "1", "--user", "id", "--max-per-user", "3", "--method", "smooth-student"]
    assert "for each user (3 points)" in run(*quantile(folder, *line, "--out", folder / "q.json")).out
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
def test_bad_questions(folder, refused, more, message):
    refused(quantile(folder, *more), message)


def test_rows_of_a_condition(folder, run, refused):
    """How many rows meet it is public, as the number of points always is here."""
    few = np.arange(2000) % 700 < 100
    said = run(*publish(folder, "--epsilon", "1", "--where", "id < 100"))
    assert f"{(~few).sum():,} rows left out that are not id < 100" in said.err
    assert f"{few.sum()} points" in said.out
    assert dh.load(folder / "ages.parquet").counting.where == "id < 100"
    refused(publish(folder, "--epsilon", "1", "--where", "age < 100"), "'age' says where a point is")


def test_a_quantile_with_decimal_commas_from_standard_input(folder, run, monkeypatch):
    text = pd.DataFrame({"age": AGES}).to_csv(index=False, decimal=",")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    line = "quantile - --x age --q 0.5 --bounds 0,150 --delta 1 --epsilon 1 --decimal ,"
    assert abs(float(run(*line.split()).out.split()[0]) - np.quantile(AGES, 0.5)) < 8
