"""--limit: what moves beyond δ cost at most, wherever --delta is taken."""

import json

import numpy as np
import pandas as pd
import pytest

import deltahist as dh

PLACE = ["--bounds", "0,0,12,10", "--cell", "1", "--delta", "1", "--epsilon", "1"]
PUBLISH = ["publish", "v.csv", "--x", "x", "--y", "y", *PLACE, "--out", "v.parquet", "--overwrite"]
STREAM = ["stream", "v.csv", "--time", "day", "--start", "0", "--window", "2", "--x", "x", "--y", "y", *PLACE]
DAYS = [*STREAM, "--state", "s.ledger", "--out", "days", "--until"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = np.random.default_rng(3).random((200, 2)) * (12, 10)
    pd.DataFrame(places, columns=["x", "y"]).assign(day=np.arange(200) % 2).to_csv("v.csv", index=False)
    return tmp_path


def limits():
    return [
        (float(limit.distance), float(limit.factor)) for limit in dh.load("v.parquet").neighbourhood.profile
    ]


def test_what_is_chosen_is_capped_and_says_so(run):
    text = run(*PUBLISH).out
    line = next(each for each in text.splitlines() if each.startswith("limit "))
    assert line.endswith(" (nobody asked for another limit; --limit any:none lifts it)")
    assert limits() == [(np.inf, 4)]
    assert dh.load("v.parquet").mechanism.any_move <= 4
    assert line in run(*PUBLISH, "--dry-run").out.splitlines()


def test_the_cap_is_lifted(run):
    text = run(*PUBLISH, "--limit", "any:none").out
    release = dh.load("v.parquet")
    assert limits() == []
    assert release.strategy.name == "Flow"
    assert f"limit        any move at all costs at most ε = {release.mechanism.any_move:.4g}" in text.splitlines()


def test_a_strategy_that_is_named_says_what_any_move_costs(run):
    text = run(*PUBLISH, "--strategy", "cumulative").out
    release = dh.load("v.parquet")
    assert release.neighbourhood.limits is None
    told = f"limit        any move at all costs at most ε = {release.mechanism.any_move:.4g} (--limit any:4 allows "
    assert told in text
    capped = run(*PUBLISH, "--strategy", "cumulative", "--limit", "any:4").out
    assert "limit        any move at all costs at most ε = 4\n" in capped
    assert dh.load("v.parquet").mechanism.any_move == pytest.approx(4)


def test_limits_for_several_distances(run):
    text = run(*PUBLISH, "--limit", "any:4", "--limit", "2.5:1.5", "--strategy", "identity").out
    assert limits() == [(2.5, 1.5), (np.inf, 4)]
    assert "at most 1.5 ε up to 2.5 units, at most 4 ε however far" in text
    run(*PUBLISH, "--limit", "proportional", "--limit", "any:2")
    profile = dh.load("v.parquet").neighbourhood.profile
    assert [limit.any for limit in profile] == [False] * (len(profile) - 1) + [True]
    assert profile[-1].factor == 2
    text = run(*PUBLISH, "--limit", "3:2").out
    costs = dh.load("v.parquet").mechanism.any_move
    assert f"at all costs at most ε = {costs:.4g}\n" in text
    run(*PUBLISH, "--limit", "3:2", "--limit", "any:none")
    assert limits() == [(3, 2)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["2km"], ["--limit is '2km'", "such as 2km:2 or any:4"]),
        (["sometimes"], ["--limit is 'sometimes'", "any:none, or proportional"]),
        (["3:0.5"], ["--limit is '3:0.5'", "at least 1", "take a smaller budget"]),
        (["any:many"], ["--limit 'any:many': the factor is 'many'", "finite number above zero"]),
        (["3leagues:2"], ["the distance of a limit is '3leagues'", "such as 250m"]),
        (["3:none"], ["--limit '3:none': the factor is 'none'"]),
        (["any:none", "any:4"], ["--limit is any:none", "leave one of them out"]),
        (["1:2"], ["the distance of a limit is 1.0", "longer than delta", "same unit"]),
        (["3:4", "5:2"], ["2 times the budget within 5", "exchanged"]),
        (["2km:2"], ["the distance of a limit is '2km'", "has no CRS", "state the CRS"]),
        (["4"], ["--limit without --ledger and --account", "--limit any:4"]),
    ],
)
def test_what_is_no_limit_is_refused(refused, folder, given, words):
    refused([*PUBLISH, *(word for text in given for word in ("--limit", text))], *words)
    assert not (folder / "v.parquet").exists()


def test_an_account_has_a_limit_of_its_own(refused, run):
    account = ["--ledger", "l", "--account", "a"]
    refused([*PUBLISH, "--limit", "any:3", *account], "of what moves cost: give both")
    text = run(*PUBLISH, "--limit", "2", "--limit", "any:3", *account).out
    assert "at most 3 ε however far" in text
    assert dh.load("v.parquet").payment.limit == 2
    text = run(*PUBLISH, "--limit", "any:3", *account).out
    assert dh.load("v.parquet").payment.spent == 2
    refused([*PUBLISH, "--limit", "5", "--limit", "6", *account], "an account has one limit")


def test_a_plan_says_what_any_move_costs(run):
    rows = json.loads(run("plan", *PLACE, "--limit", "any:2", "--format", "json").out)
    assert all(row["any_move"] <= 2 for row in rows)
    said = run("plan", *PLACE, "--limit", "any:2")
    assert f"ε = {rows[0]['any_move']:.4g}" in said.out
    assert "nobody asked" not in said.err
    assert "any move may cost at most 4 times what one within δ may (nobody asked" in run("plan", *PLACE).err
    rows = json.loads(run("plan", *PLACE, "--deltas", "1,2", "--limit", "any:2", "--format", "json").out)
    assert all(row["any_move"] <= 2 for row in rows)
    assert "shown" not in rows[0]


def test_the_frontier_as_table_as_data_and_as_picture(run, folder):
    line = ["plan", *PLACE[2:], "--bounds", "0,0,4,3", "--frontier"]
    table = run(*line, "--picture", "f.png").out
    assert (folder / "f.png").read_bytes().startswith(b"\x89PNG")
    assert [line.split()[0] for line in table.splitlines()[4:]] == [
        *(f"any:{e:g}" for e in (1, 1.5, 2, 3, 4, 6, 8)),
        "none",
    ]
    rows = json.loads(run(*line, "--format", "json").out)
    assert [row["limit"] for row in rows] == [1, 1.5, 2, 3, 4, 6, 8, None]
    assert all(row["limit"] is None or row["any_move"] <= row["limit"] for row in rows)
    assert rows[-1]["rival"] is None
    assert rows[0]["rival_rmse"] == pytest.approx(rows[0]["rmse"], rel=0.2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--picture", "f.png"], "--picture is 'f.png' without --frontier"),
        (["--frontier", "--deltas", "1,2"], "--frontier is given with --deltas"),
        (["--frontier", "--picture", "f.gif"], "its suffix must be one of .png"),
        (["--frontier", "--picture", "no/f.png"], "does not exist"),
    ],
)
def test_what_a_frontier_does_not_go_with(refused, more, words):
    refused(["plan", *PLACE, *more], words)


def test_a_stream_keeps_its_limits(refused, run, folder):
    text = run(*DAYS, "0").out
    assert "limit        in each step any move at all costs at most ε = " in text
    assert dh.load(folder / "days" / "0.parquet").neighbourhood.profile[-1].factor == 4
    assert "1 step to" in run(*DAYS, "1").out
    refused([*DAYS, "1", "--limit", "any:8"], "neighbourhood")
    assert dh.Series.load(folder / "days").missing == []
    run(*STREAM, "--state", "p.ledger", "--out", "planned", "--squares", "3", "--until", "0")
    assert dh.load(folder / "planned" / "0.parquet").neighbourhood.profile[-1].factor == 4


def test_a_stream_that_began_without_limits_goes_on_without(run, folder):
    run(*DAYS, "0", "--limit", "any:none")
    assert "(--limit any:4 allows" in run(*DAYS, "1").out
    assert dh.Series.load(folder / "days").missing == []


def test_a_refinement_keeps_what_was_promised(run, refused):
    run(*PUBLISH, "--state", "v.state", "--limit", "any:3")
    line = ["refine", "v.parquet", "--state", "v.state", "--epsilon", "2", "--out", "w.parquet"]
    refused([*line, "--limit", "any:4"], "--limit is 'any:4'")
    run(*line)
    assert dh.load("w.parquet").mechanism.promise.endswith("at most 3 ε however far")


def test_a_quantile_takes_them(run):
    line = ["quantile", "v.csv", "--x", "x", "--q", "0.5", "--bounds", "0,12", "--delta", "1", "--epsilon", "1"]
    run(*line, "--limit", "3:2", "--out", "q.json")
    assert [float(limit.factor) for limit in dh.load("q.json").neighbourhood.profile] == [2]


def test_proportional_limits_are_those_of_the_cells_that_are_chosen(run):
    """Cells are tried from large to small, and each map has distances of its own."""
    places = ["--bounds", "0,0,32,32", "--delta", "8", "--epsilon", "1", "--limit", "proportional", "--cell", "auto"]
    line = ["publish", "v.csv", "--x", "x", "--y", "y", *places, "--points", "5000", "--out", "v.parquet"]
    run(*line)
    near = dh.load("v.parquet").neighbourhood
    assert near.domain.cell[0] < 8
    assert near.profile == dh.Neighbourhood(near.domain, 8, limits="proportional").profile
