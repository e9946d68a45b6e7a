"""`deltahist share`, in process, end to end."""

from importlib import import_module

import numpy as np
import pandas as pd
import pytest

from deltahist.cli import main

PLACES = ["--x", "lon", "--y", "lat", "--crs", "EPSG:4326", "--project", "EPSG:32618", "--alpha", "100m"]
NUMBER = ["--value", "age", "--alpha", "5"]


@pytest.fixture
def folder(tmp_path):
    """Forty users on a ring, one of them without an edge."""
    rng = np.random.default_rng(1)
    users = np.arange(100, 140)
    frame = pd.DataFrame(
        {"user": users, "lon": rng.uniform(-74, -73.9, 40), "lat": rng.uniform(40.6, 40.8, 40)}
    )
    frame["age"], frame["ill"] = rng.integers(20, 60, 40), rng.integers(0, 2, 40)
    frame.to_csv(tmp_path / "homes.csv", index=False)
    ring = "\n".join(f"{a} {b}" for a, b in zip(users[:-1], np.roll(users[:-1], 1), strict=True))
    (tmp_path / "friends.txt").write_text(ring + "\n")
    (tmp_path / "asked.csv").write_text("owner,requester\n101,100\n103,100\n100,103\n")
    return tmp_path


def share(folder, *more, out="out.csv", epsilon="exp(3-d)"):
    line = ["share", folder / "homes.csv", "--id", "user", "--edges", folder / "friends.txt", "--epsilon", epsilon]
    line += ["--state", folder / "share.key", "--out", folder / out, *more]
    return main([str(part) for part in line])


def test_what_one_user_may_know(folder, capsys):
    assert share(folder, *PLACES, "--requester", "100") == 0
    said = capsys.readouterr()
    assert "40 rows read\n1 users of the table have no edge" in said.err
    for part in ("38 about 38 users to 1", "values up to 100m apart on the ground", "ε(d)-private", "EPSG:32618"):
        assert part in said.out
    found = pd.read_csv(folder / "out.csv")
    assert list(found.columns) == ["owner", "requester", "distance", "epsilon", "x", "y", "rmse"]
    assert found["distance"].max() == 19


def test_the_same_answer_to_the_byte_whoever_else_asks(folder, capsys):
    assert share(folder, *NUMBER, "--requester", "100") == 0
    first = (folder / "out.csv").read_bytes()
    assert "give each" not in capsys.readouterr().err
    assert share(folder, *NUMBER, "--requester", "100") == 0
    assert (folder / "out.csv").read_bytes() == first
    assert share(folder, *NUMBER, "--all", out="all.parquet") == 0
    assert "give each their own rows only" in capsys.readouterr().err
    found, everything = pd.read_csv(folder / "out.csv"), pd.read_parquet(folder / "all.parquet")
    assert len(everything) == 39 * 38
    mine = everything[everything["requester"] == "100"].sort_values("owner").reset_index(drop=True)
    assert mine["age"].tolist() == found.sort_values("owner")["age"].tolist()


def test_pairs_numbers_and_bits(folder, capsys):
    number = ["--value", "age", "--alpha", "5", "--step", "1"]
    assert share(folder, *number, "--pairs", folder / "asked.csv", epsilon="1:15,2:8,4:0.5") == 0
    found = pd.read_csv(folder / "out.csv")
    assert found[["owner", "distance", "epsilon"]].to_numpy().tolist() == [
        [101, 1, 15],
        [103, 3, 0.5],
        [100, 3, 0.5],
    ]
    assert (found["age"] % 1 == 0).all()
    (folder / "share.key").unlink()
    bits = ["--bit", "ill", "--distance", "resistance", "--least", "0.1", "--most", "4"]
    assert share(folder, *bits, "--requester", "139") == 0
    found = pd.read_csv(folder / "out.csv")
    assert set(found["ill"]) <= {0, 1}
    assert found["epsilon"].tolist() == [0.1] * 39
    assert "wrong with a probability of 0.475" in capsys.readouterr().out


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
    (["--bit", "age"], "other bits than 0 and 1"),
    (["--value", "age", "--alpha", "0"], "--alpha is 0:"),
    (["--value", "size", "--alpha", "5"], "--value is 'size': column 'size' is not in"),
    ([*NUMBER, "--least", "x"], "--least is 'x'"),
    ([*NUMBER, "--distance", "miles"], "--distance is 'miles'"),
    ([*NUMBER, "--all"], "2 of --pairs, --requester and --all are given"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_is_refused_makes_neither_answers_nor_a_key(folder, capsys, options, said):
    before = set(folder.iterdir())
    asked = [] if "--requester" in options else ["--requester", "100"]
    assert share(folder, *options, *asked) == 2
    assert said in capsys.readouterr().err
    assert set(folder.iterdir()) == before


def test_files_are_not_confused(folder, capsys):
    assert share(folder, *NUMBER, "--requester", "100", out="homes.csv") == 2
    assert "is the file that is read" in capsys.readouterr().err
    assert share(folder, *NUMBER, "--requester", "100", "--state", folder / "friends.txt") == 2
    assert "friends.txt' is no key of a diffusion, or cut short" in capsys.readouterr().err
    assert share(folder, *NUMBER, "--requester", "100", out="out.xlsx") == 2
    assert "must end in .csv or .parquet" in capsys.readouterr().err
    (folder / "others.csv").write_text("a b\n")
    assert share(folder, *NUMBER, "--requester", "a", "--edges", folder / "others.csv") == 2
    assert "user '100', '101', '102', ... is not in the network (40 of 40 are not)" in capsys.readouterr().err


def test_all_is_for_small_networks(folder, capsys, monkeypatch):
    monkeypatch.setattr(import_module("deltahist.cli.share"), "_MOST_PAIRS", 1000)
    assert share(folder, "--bit", "ill", "--all") == 2
    assert "--all is given for 39 users, 1,521 pairs: it answers 1,000 at most" in capsys.readouterr().err


def test_the_key_is_not_replaced_by_answers(folder, capsys):
    assert share(folder, *NUMBER, "--requester", "100", out="share.key") == 2
    assert "--out is: the answers are for others, the key is secret; name two files" in capsys.readouterr().err
    assert share(folder, *NUMBER, "--requester", "100", "--state", folder / "new.csv", out="new.csv") == 2
    assert "as --out is" in capsys.readouterr().err
    assert not (folder / "new.csv").exists()


@pytest.mark.parametrize("name", ["edges", "pairs"])
def test_data_are_no_edges(folder, capsys, name):
    asked = ["--requester", "100"] if name == "edges" else []
    assert share(folder, *NUMBER, *asked, f"--{name}", folder / "homes.csv") == 2
    assert f"which is the table of data: name the file of {name}" in capsys.readouterr().err


def test_users_without_data_are_named(folder, capsys):
    (folder / "friends.txt").write_text("knows,known\n100,101\n")
    assert share(folder, *NUMBER, "--requester", "100") == 0
    assert "2 of 4 users of the network have no data: they may only ask ('known', 'knows')" in capsys.readouterr().err
