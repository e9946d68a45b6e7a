"""`deltahist query` of a folder: sums, rows per step, changes, missing steps."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import deltahist as dh

NEAR = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), 1, "boundary")
BOXES = ["--box", "0,0,2,2", "--box", "1,1,4,4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("city")
    for day in (1, 2, 3, 5, 6):
        release = dh.publish(np.full((4, 4), day), NEAR, "identity", 1.0)
        release.save(folder / f"2010-05-0{day}.parquet")
    return folder


@pytest.fixture
def ask(run, folder):
    """Ask for two boxes of a folder as CSV; return the frame and the notes."""

    def ask(*more, folder=folder):
        said = run("query", folder, *BOXES, "--format", "csv", *more)
        return pd.read_csv(io.StringIO(said.out)), said.err

    return ask


def test_a_period_is_summed(folder, ask):
    found, _ = ask("--between", "2010-05-01", "2010-05-03")
    series = dh.Series.load(folder).between("2010-05-01", "2010-05-03")
    expected = dh.answer(series, [[0, 0, 2, 2], [1, 1, 4, 4]])
    pd.testing.assert_frame_equal(found[list(expected.columns)], expected)
    assert found["west"].tolist() == [0, 1]
    mean, _ = ask("--between", "2010-05-01", "2010-05-03", "--mean")
    assert np.allclose(mean["estimate"], found["estimate"] / 3)


def test_missing_steps_stop_or_are_skipped(folder, ask, refused):
    refused(["query", folder, *BOXES], "1 of 6 steps have no release: 2010-05-04", "--missing skip")
    found, note = ask("--missing", "skip")
    assert found["steps"].tolist() == [5, 5]
    assert "note: steps without a release, 1: 2010-05-04" in note


def test_a_row_for_each_step(folder, ask, run):
    found, note = ask("--each", "--between", "2010-05-03", "2010-05-05")
    assert found["step"].tolist() == [f"2010-05-0{day}" for day in (3, 3, 4, 4, 5, 5)]
    assert found["name"].tolist() == ["0,0,2,2", "1,1,4,4"] * 3
    assert found["east"].tolist() == [2, 4] * 3
    assert found["estimate"].isna().tolist() == [False, False, True, True, False, False]
    assert "2010-05-04" in note
    assert "2010-05-06" in run("query", folder, *BOXES, "--each").out


def test_two_periods_are_compared(ask, folder, run):
    line = ["--between", "2010-05-05", "2010-05-06", "--compare", "2010-05-01", "2010-05-03"]
    found, note = ask(*line)
    assert np.allclose(found["after"] - found["before"], found["estimate"])
    assert "the periods have 3 and 2 steps" in note
    _, note = ask(*line, "--mean")
    assert "note:" not in note
    assert "The estimate is the change: after less before." in run("query", folder, *BOXES, *line).out


def test_other_layouts_have_all_steps(folder, run):
    line = ["query", str(folder), *BOXES, "--each", "--between", "2010-05-01", "2010-05-02", "--format"]
    for layout in ("json", "geojson"):
        read = json.loads(run(*line, layout).out)
        assert len(read["answers" if layout == "json" else "features"]) == 4
        steps = (read if layout == "json" else read["deltahist_export"])["digest"]
        assert steps == {day: dh.load(folder / f"{day}.parquet").digest for day in ("2010-05-01", "2010-05-02")}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--each", "--mean"], "--each is given with --mean"),
        (["--each", "--compare", "2010-05-01", "2010-05-02"], "--each is given with --compare"),
        (["--nonnegative", "--compare", "2010-05-01", "2010-05-02"], "--nonnegative is given with --compare"),
        (["--between", "2010-05-03", "2010-05-01"], "they are reversed"),
    ],
)
def test_what_does_not_go_together_is_refused(folder, refused, more, words):
    refused(["query", folder, *BOXES, *more], words)


def test_a_single_release_has_no_steps(folder, refused):
    refused(["query", folder / "2010-05-01.parquet", *BOXES, "--mean"], "--mean is given, but")


def test_a_folder_that_protects_hardly_anybody_says_so(tmp_path, ask):
    weak = dh.publish(np.ones((4, 4), dtype=int), NEAR, "identity", 50, weak_protection_accepted=True)
    weak.save(tmp_path / "2010-05-01.parquet")
    assert f"hardly protects anybody: {weak.mechanism.weakness}" in ask(folder=tmp_path)[1]
