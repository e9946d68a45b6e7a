"""`deltahist share`, in process, end to end."""

import numpy as np
import pandas as pd
import pytest

PLACES = ["--x", "lon", "--y", "lat", "--crs", "EPSG:4326", "--project", "EPSG:32618", "--alpha", "100m"]
NUMBER = ["--value", "age", "--alpha", "5"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Forty users on a ring, one of them without an edge."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    users = np.arange(100, 140)
    frame = pd.DataFrame({"user": users, "lon": rng.uniform(-74, -73.9, 40), "lat": rng.uniform(40.6, 40.8, 40)})
    frame["age"], frame["ill"] = rng.integers(20, 60, 40), rng.integers(0, 2, 40)
    frame.to_csv(tmp_path / "homes.csv", index=False)
    ring = "\n".join(f"{a} {b}" for a, b in zip(users[:-1], np.roll(users[:-1], 1), strict=True))
    (tmp_path / "friends.txt").write_text(ring + "\n")
    (tmp_path / "others.csv").write_text("a b\n")
    (tmp_path / "asked.csv").write_text("owner,requester\n101,100\n103,100\n100,103\n")
    return tmp_path


def share(folder, *more, out="out.csv", epsilon="exp(2-d)"):
    line = ["share", folder / "homes.csv", "--id", "user", "--edges", folder / "friends.txt", "--epsilon", epsilon]
    line += ["--state", folder / "share.key", "--out", folder / out, *more]
    return [str(part) for part in line]


def test_what_one_user_may_know(folder, run):
    said = run(*share(folder, *PLACES, "--requester", "100"))
    assert "40 rows read" in said.err
    for part in ("38 about 38 users to 1", "values up to 100m apart on the ground", "ε(d)-private", "EPSG:32618"):
        assert part in said.out
    found = pd.read_csv(folder / "out.csv")
    assert list(found.columns) == ["owner", "requester", "distance", "epsilon", "x", "y", "rmse"]
    assert found["distance"].max() == 19


def test_the_same_answer_to_the_byte_whoever_else_asks(folder, run):
    run(*share(folder, *NUMBER, "--requester", "100"))
    first = (folder / "out.csv").read_bytes()
    run(*share(folder, *NUMBER, "--requester", "100"))
    assert (folder / "out.csv").read_bytes() == first
    run(*share(folder, *NUMBER, "--all", out="all.parquet"))
    found, everything = pd.read_csv(folder / "out.csv"), pd.read_parquet(folder / "all.parquet")
    assert len(everything) == 39 * 38
    mine = everything[everything["requester"] == "100"].sort_values("owner").reset_index(drop=True)
    assert mine["age"].tolist() == found.sort_values("owner")["age"].tolist()


def test_pairs_numbers_and_bits(folder, run):
    number = ["--value", "age", "--alpha", "5", "--step", "1"]
    run(*share(folder, *number, "--pairs", folder / "asked.csv", epsilon="1:5,2:2,4:0.5"))
    found = pd.read_csv(folder / "out.csv")
    assert found[["owner", "distance", "epsilon"]].to_numpy().tolist() == [[101, 1, 5], [103, 3, 0.5], [100, 3, 0.5]]
    assert (found["age"] % 1 == 0).all()
    (folder / "share.key").unlink()
    bits = ["--bit", "ill", "--distance", "resistance", "--least", "0.1"]
    assert "wrong with a probability of 0.475" in run(*share(folder, *bits, "--requester", "139")).out
    found = pd.read_csv(folder / "out.csv")
    assert set(found["ill"]) <= {0, 1}
    assert found["epsilon"].tolist() == [0.1] * 39


REFUSED = [
    ["--x", "lon", "--y", "lat", "--alpha", "100m"],
    ["--x", "1", "--y", "2", "--alpha", "1"],
    ["--x", "lon", "--y", "lat", "--crs", "EPSG:4326", "--alpha", "1"],
    [*PLACES, "--project", "auto"],
    [*PLACES, "--x", "lat", "--y", "lon"],
    ["--x", "lon", "--alpha", "1"],
    ["--value", "age", "--bit", "ill"],
    ["--value", "age"],
    ["--bit", "ill", "--alpha", "1"],
    [*NUMBER, "--all"],
    [*NUMBER, "--out", "homes.csv"],
    [*NUMBER, "--out", "out.xlsx"],
    [*NUMBER, "--out", "share.key"],
    [*NUMBER, "--state", "friends.txt"],
    [*NUMBER, "--edges", "homes.csv"],
    [*NUMBER, "--edges", "others.csv", "--requester", "a"],
]


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_what_is_refused_makes_neither_answers_nor_a_key(folder, refused, options):
    before = set(folder.iterdir())
    asked = [] if "--requester" in options else ["--requester", "100"]
    refused(share(folder, *options, *asked))
    assert set(folder.iterdir()) == before
