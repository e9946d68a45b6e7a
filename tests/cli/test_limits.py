"""--limit: what moves beyond δ cost at most, wherever --delta is taken."""

import json

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main

PLACE = ["--bounds", "0,0,12,10", "--cell", "1", "--delta", "1", "--epsilon", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = np.random.default_rng(3).random((200, 2)) * (12, 10)
    pd.DataFrame(places, columns=["x", "y"]).assign(day=np.arange(200) % 2).to_csv("v.csv", index=False)
    return tmp_path


def said(capsys, *line, code=0):
    capsys.readouterr()
    assert main([*map(str, line)]) == code
    out = capsys.readouterr()
    return out.out if code == 0 else out.err


def published(capsys, *more, code=0):
    line = ["publish", "v.csv", "--x", "x", "--y", "y", *PLACE, "--out", "v.parquet", "--overwrite"]
    return said(capsys, *line, *more, code=code)


def limits():
    return [
        (float(limit.distance), float(limit.factor)) for limit in dh.load("v.parquet").neighbourhood.profile
    ]


def test_what_is_chosen_is_capped_and_says_so(capsys):
    text = published(capsys)
    line = next(each for each in text.splitlines() if each.startswith("limit "))
    assert line.endswith(" (nobody asked for another limit; --limit any:none lifts it)")
    assert limits() == [(np.inf, 4)]
    assert dh.load("v.parquet").mechanism.any_move <= 4
    assert line in published(capsys, "--dry-run").splitlines()


def test_the_cap_is_lifted(capsys):
    text = published(capsys, "--limit", "any:none")
    release = dh.load("v.parquet")
    assert limits() == []
    assert release.strategy.name == "Flow"
    assert f"limit        any move at all costs at most ε = {release.mechanism.any_move:.4g}" in text.splitlines()


def test_a_strategy_that_is_named_says_what_any_move_costs(capsys):
    text = published(capsys, "--strategy", "cumulative")
    release = dh.load("v.parquet")
    assert release.neighbourhood.limits is None
    told = f"limit        any move at all costs at most ε = {release.mechanism.any_move:.4g} (--limit any:4 allows "
    assert told in text
    capped = published(capsys, "--strategy", "cumulative", "--limit", "any:4")
    assert "limit        any move at all costs at most ε = 4\n" in capped
    assert dh.load("v.parquet").mechanism.any_move == pytest.approx(4)


def test_limits_for_several_distances(capsys):
    text = published(capsys, "--limit", "any:4", "--limit", "2.5:1.5", "--strategy", "identity")
    assert limits() == [(2.5, 1.5), (np.inf, 4)]
    assert "at most 1.5 ε up to 2.5 units, at most 4 ε however far" in text
    published(capsys, "--limit", "proportional", "--limit", "any:2")
    profile = dh.load("v.parquet").neighbourhood.profile
    assert [limit.any for limit in profile] == [False] * (len(profile) - 1) + [True]
    assert profile[-1].factor == 2
    text = published(capsys, "--limit", "3:2")
    costs = dh.load("v.parquet").mechanism.any_move
    assert f"at all costs at most ε = {costs:.4g}\n" in text
    published(capsys, "--limit", "3:2", "--limit", "any:none")
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
def test_what_is_no_limit_is_refused(capsys, folder, given, words):
    text = published(capsys, *(word for text in given for word in ("--limit", text)), code=2)
    for each in words:
        assert each in text
    assert not (folder / "v.parquet").exists()


def test_an_account_has_a_limit_of_its_own(capsys):
    account = ["--ledger", "l", "--account", "a"]
    assert "of what moves cost: give both" in published(capsys, "--limit", "any:3", *account, code=2)
    text = published(capsys, "--limit", "2", "--limit", "any:3", *account)
    assert "at most 3 ε however far" in text
    assert dh.load("v.parquet").payment.limit == 2
    text = published(capsys, "--limit", "any:3", *account)
    assert dh.load("v.parquet").payment.spent == 2
    assert "an account has one limit" in published(capsys, "--limit", "5", "--limit", "6", *account, code=2)


def test_a_plan_says_what_any_move_costs(capsys):
    rows = json.loads(said(capsys, "plan", *PLACE, "--limit", "any:2", "--format", "json"))
    assert all(row["any_move"] <= 2 for row in rows)
    table = said(capsys, "plan", *PLACE, "--limit", "any:2")
    assert "any move" in table
    assert "nobody asked" not in capsys.readouterr().err
    assert main(["plan", *PLACE]) == 0
    assert "any move may cost at most 4 times what one within δ may (nobody asked" in capsys.readouterr().err
    assert f"ε = {rows[0]['any_move']:.4g}" in table
    rows = json.loads(said(capsys, "plan", *PLACE, "--deltas", "1,2", "--limit", "any:2", "--format", "json"))
    assert all(row["any_move"] <= 2 for row in rows)
    assert "shown" not in rows[0]


def test_the_frontier_as_table_as_data_and_as_picture(capsys, folder):
    line = ["plan", *PLACE[2:], "--bounds", "0,0,6,4", "--frontier"]
    table = said(capsys, *line, "--picture", "f.png")
    assert (folder / "f.png").read_bytes().startswith(b"\x89PNG")
    assert [line.split()[0] for line in table.splitlines()[4:]] == [
        *(f"any:{e:g}" for e in (1, 1.5, 2, 3, 4, 6, 8)),
        "none",
    ]
    rows = json.loads(said(capsys, *line, "--format", "json"))
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
def test_what_a_frontier_does_not_go_with(capsys, more, words):
    assert words in said(capsys, "plan", *PLACE, *more, code=2)


def test_a_stream_keeps_its_limits(capsys, folder):
    line = ["stream", "v.csv", "--time", "day", "--start", "0", "--window", "2", "--x", "x", "--y", "y", *PLACE]
    line += ["--state", "s.ledger", "--out", "days"]
    text = said(capsys, *line, "--until", "0")
    assert "limit        in each step any move at all costs at most ε = " in text
    assert dh.load(folder / "days" / "0.parquet").neighbourhood.profile[-1].factor == 4
    assert "1 steps" in said(capsys, *line, "--until", "1")
    assert "neighbourhood" in said(capsys, *line, "--until", "1", "--limit", "any:8", code=2)
    assert dh.Series.load(folder / "days").missing == []
    planned = [*line[:-4], "--state", "p.ledger", "--out", "planned", "--squares", "3", "--until", "0"]
    said(capsys, *planned)
    assert dh.load(folder / "planned" / "0.parquet").neighbourhood.profile[-1].factor == 4


def test_a_stream_that_began_without_limits_goes_on_without(capsys, folder):
    line = ["stream", "v.csv", "--time", "day", "--start", "0", "--window", "2", "--x", "x", "--y", "y", *PLACE]
    line += ["--state", "s.ledger", "--out", "days"]
    said(capsys, *line, "--until", "0", "--limit", "any:none")
    assert "(--limit any:4 allows" in said(capsys, *line, "--until", "1")
    assert dh.Series.load(folder / "days").missing == []


def test_a_refinement_keeps_what_was_promised(capsys):
    published(capsys, "--state", "v.state", "--limit", "any:3")
    line = ["refine", "v.parquet", "--state", "v.state", "--epsilon", "2", "--out", "w.parquet"]
    assert "--limit is 'any:4'" in said(capsys, *line, "--limit", "any:4", code=2)
    said(capsys, *line)
    assert dh.load("w.parquet").mechanism.promise.endswith("at most 3 ε however far")


def test_a_quantile_takes_them(capsys):
    line = ["quantile", "v.csv", "--x", "x", "--q", "0.5", "--bounds", "0,12", "--delta", "1", "--epsilon", "1"]
    said(capsys, *line, "--limit", "3:2", "--out", "q.json")
    assert [float(limit.factor) for limit in dh.load("q.json").neighbourhood.profile] == [2]


def test_proportional_limits_are_those_of_the_cells_that_are_chosen(capsys):
    """Cells are tried from large to small, and each map has distances of its own."""
    places = ["--bounds", "0,0,32,32", "--delta", "8", "--epsilon", "1", "--limit", "proportional", "--cell", "auto"]
    line = ["publish", "v.csv", "--x", "x", "--y", "y", *places, "--points", "5000", "--out", "v.parquet"]
    said(capsys, *line)
    near = dh.load("v.parquet").neighbourhood
    assert near.domain.cell[0] < 8
    assert near.profile == dh.Neighbourhood(near.domain, 8, limits="proportional").profile
