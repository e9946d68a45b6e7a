"""`deltahist share`, in process, end to end."""

from importlib import import_module

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
    frame = pd.DataFrame(
        {"user": users, "lon": rng.uniform(-74, -73.9, 40), "lat": rng.uniform(40.6, 40.8, 40)}
    )
    frame["age"], frame["ill"] = rng.integers(20, 60, 40), rng.integers(0, 2, 40)
    frame.to_csv(tmp_path / "homes.csv", index=False)
    ring = "\n".join(f"{a} {b}" for a, b in zip(users[:-1], np.roll(users[:-1], 1), strict=True))
    (tmp_path / "friends.txt").write_text(ring + "\n")
    (tmp_path / "others.csv").write_text("a b\n")
    (tmp_path / "asked.csv").write_text("owner,requester\n101,100\n103,100\n100,103\n")
    return tmp_path


def share(folder, *more, out="out.csv", epsilon="exp(3-d)"):
    line = ["share", folder / "homes.csv", "--id", "user", "--edges", folder / "friends.txt", "--epsilon", epsilon]
    line += ["--state", folder / "share.key", "--out", folder / out, *more]
    return [str(part) for part in line]


def test_what_one_user_may_know(folder, run):
    said = run(*share(folder, *PLACES, "--requester", "100"))
    assert "40 rows read\n1 users of the table have no edge" in said.err
    for part in ("38 about 38 users to 1", "values up to 100m apart on the ground", "ε(d)-private", "EPSG:32618"):
        assert part in said.out
    found = pd.read_csv(folder / "out.csv")
    assert list(found.columns) == ["owner", "requester", "distance", "epsilon", "x", "y", "rmse"]
    assert found["distance"].max() == 19


def test_the_same_answer_to_the_byte_whoever_else_asks(folder, run):
    assert "give each" not in run(*share(folder, *NUMBER, "--requester", "100")).err
    first = (folder / "out.csv").read_bytes()
    run(*share(folder, *NUMBER, "--requester", "100"))
    assert (folder / "out.csv").read_bytes() == first
    assert "give each their own rows only" in run(*share(folder, *NUMBER, "--all", out="all.parquet")).err
    found, everything = pd.read_csv(folder / "out.csv"), pd.read_parquet(folder / "all.parquet")
    assert len(everything) == 39 * 38
    mine = everything[everything["requester"] == "100"].sort_values("owner").reset_index(drop=True)
    assert mine["age"].tolist() == found.sort_values("owner")["age"].tolist()


def test_pairs_numbers_and_bits(folder, run):
    number = ["--value", "age", "--alpha", "5", "--step", "1"]
    run(*share(folder, *number, "--pairs", folder / "asked.csv", epsilon="1:15,2:8,4:0.5"))
    found = pd.read_csv(folder / "out.csv")
    assert found[["owner", "distance", "epsilon"]].to_numpy().tolist() == [
        [101, 1, 15],
        [103, 3, 0.5],
        [100, 3, 0.5],
    ]
    assert (found["age"] % 1 == 0).all()
    (folder / "share.key").unlink()
    bits = ["--bit", "ill", "--distance", "resistance", "--least", "0.1"]
    assert "wrong with a probability of 0.475" in run(*share(folder, *bits, "--requester", "139")).out
    found = pd.read_csv(folder / "out.csv")
    assert set(found["ill"]) <= {0, 1}
    assert found["epsilon"].tolist() == [0.1] * 39


REFUSED = [
    (["--x", "lon", "--y", "lat", "--alpha", "100m"], "add --crs EPSG:4326 and --project"),
    (["--x", "1", "--y", "2", "--alpha", "1"], "add --crs EPSG:4326 --project EPSG:32618"),
    (["--x", "lon", "--y", "lat", "--crs", "EPSG:4326", "--alpha", "1"], "--crs is 'EPSG:4326': degrees"),
    ([*PLACES, "--project", "auto"], "--project is 'auto', which takes --bounds, and there are none"),
    ([*PLACES, "--x", "lat", "--y", "lon"], "are x and y swapped"),
    (["--x", "lon", "--alpha", "1"], "--y is missing"),
    (["--value", "age", "--bit", "ill"], "--value and --bit are given"),
    (["--value", "age", "--crs", "EPSG:4326", "--alpha", "1"], "--crs is 'EPSG:4326' with --value"),
    (["--value", "age"], "--alpha is missing: numbers and places need it"),
    (["--bit", "ill", "--alpha", "1"], "--alpha is 1 with --bit"),
    (["--bit", "age"], "bits other than 0 and 1"),
    (["--value", "age", "--alpha", "0"], "--alpha is 0:"),
    (["--value", "size", "--alpha", "5"], "--value is 'size': column 'size' is not in"),
    ([*NUMBER, "--least", "x"], "--least is 'x'"),
    ([*NUMBER, "--distance", "miles"], "--distance is 'miles'"),
    ([*NUMBER, "--all"], "2 of --pairs, --requester and --all are given"),
    # Files that are confused with each other.
    ([*NUMBER, "--out", "homes.csv"], "is the file that is read"),
    ([*NUMBER, "--out", "out.xlsx"], "must end in .csv or .parquet"),
    ([*NUMBER, "--out", "share.key"], "--out is: the answers are for others, the key is secret; name two files"),
    ([*NUMBER, "--out", "new.csv", "--state", "new.csv"], "--state is 'new.csv', as --out is"),
    ([*NUMBER, "--state", "friends.txt"], "friends.txt' is damaged or no key of a diffusion"),
    ([*NUMBER, "--edges", "homes.csv"], "which is the table of data: name the file of edges"),
    ([*NUMBER, "--pairs", "homes.csv"], "which is the table of data: name the file of pairs"),
    ([*NUMBER, "--edges", "others.csv", "--requester", "a"], "'100', '101', '102', ... is not in the network"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_is_refused_makes_neither_answers_nor_a_key(folder, refused, options, said):
    before = set(folder.iterdir())
    asked = [] if "--requester" in options else ["--requester", "100"]
    refused(share(folder, *options, *asked), said)
    assert set(folder.iterdir()) == before


def test_all_is_for_small_networks(folder, refused, monkeypatch):
    monkeypatch.setattr(import_module("deltahist.cli.share"), "_MOST_PAIRS", 1000)
    message = "--all is given for 39 users, 1,521 pairs: it answers 1,000 at most"
    refused(share(folder, "--bit", "ill", "--all"), message)


def test_users_without_data_are_named(folder, run):
    (folder / "friends.txt").write_text("knows,known\n100,101\n")
    said = run(*share(folder, *NUMBER, "--requester", "100")).err
    assert "2 of 4 users of the network have no data: they may only ask ('known', 'knows')" in said
