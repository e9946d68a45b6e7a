"""`deltahist publish --state`, `refine` and `tighten`, end to end."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    xy = np.random.default_rng(5).random((500, 2)) * 16
    pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1]}).to_csv("visits.csv", index=False)
    return tmp_path


def publish(*more, out="city.parquet"):
    words = "--x x --y y --bounds 0,0,16,16 --cell 1 --delta 1 --epsilon 0.5 --strategy identity --state city.state"
    return main(["publish", "visits.csv", *words.split(), "--out", out, *more])


def refine(*more, out="city-2.parquet", release=("city.parquet",)):
    return main(["refine", *release, "--state", "city.state", "--out", out, *more])


def said(capsys):
    return capsys.readouterr().err.splitlines()[-1]


def test_a_chain_from_a_table_to_a_copy(capsys):
    assert publish() == 0
    assert "city.state, which refines it (deltahist refine); as secret as the data" in capsys.readouterr().out
    assert refine("--epsilon", "2") == 0
    out = capsys.readouterr().out
    assert "all 2 together cost ε = 2, not the sum" in out
    assert main(["tighten", "city-2.parquet", "--epsilon", "0.1", "--out", "copy.parquet"]) == 0
    assert "a more private copy of release 2 of chain" in capsys.readouterr().out
    assert main(["statement", "copy.parquet", "--out", "copy.html"]) == 0
    words = "whoever has both, or several copies of it, may learn what the finer one allows, and no more"
    assert words in Path("copy.html").read_text()
    capsys.readouterr()
    assert main(["inspect", "copy.parquet", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["epsilon"], facts["chain"]["amounts"], facts["chain"]["copied"]) == (0.1, ["1/2", "2"], "1/10")
    assert main(["statement", "city-2.parquet", "--out", "page.html"]) == 0
    assert "This is release 2 of a chain of ever finer releases of the same data" in Path("page.html").read_text()


def test_accounts_pay_the_difference(capsys):
    account = ("--ledger", "l", "--account", "people")
    assert publish(*account, "--limit", "2") == 0
    assert refine("--epsilon", "1.5") == 2
    assert "account 'people' paid for this chain, and none is given" in said(capsys)
    assert refine("--epsilon", "2.25", *account) == 2
    assert "'people' of 'l' has ε = 1.5 left and paid 0.5 for this chain, which counts" in said(capsys)
    assert refine("--epsilon", "2", "--ledger", "other", "--account", "people", "--limit", "9") == 2
    assert "take the ledger that paid" in said(capsys)
    assert not Path("other").exists()
    assert refine("--epsilon", "2", *account) == 0
    assert "'people' has spent ε = 2 of 2, this release with it" in capsys.readouterr().out


def test_a_state_whose_release_was_paid_for(capsys):
    account = ("--ledger", "l", "--account", "people")
    publish(*account, "--limit", "2")
    assert refine(release=(), out="again.parquet") == 2
    assert "account 'people' paid for this chain, and none is given" in said(capsys)
    assert refine("--ledger", "other", "--account", "people", release=(), out="again.parquet") == 2
    assert "--limit is missing: account 'people' is new in 'other'" in said(capsys)
    assert refine(*account, release=(), out="again.parquet") == 0
    assert (dh.load("again.parquet").values == dh.load("city.parquet").values).all()


def test_relaxing_until_an_error_is_met(capsys):
    publish()
    capsys.readouterr()
    assert refine("--until", "9", "--squares", "4") == 0
    said = capsys.readouterr()
    assert "for an error of 9 points over 2,000 squares of side 4" in said.err
    release = dh.load("city-2.parquet")
    work = dh.workloads.random_squares(4, 2000, release.domain)
    assert 8.9 < release.mechanism.rmse(work) <= 9
    assert refine("--until", "9.5", "--squares", "4", out="c.parquet", release=("city-2.parquet",)) == 2
    assert "meets, and the release has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "none of --epsilon, --rho and --until is given: it must be one of them; without RELEASE"),
        (("--epsilon", "0.5"), "amount is 0.5, but the release has spent 0.5: it must be more"),
        (("--epsilon", "0.1"), "it must be more (a more private copy of a release is what `tighten` makes)"),
        (("--rho", "1"), "rho is given, but the chain spends epsilon"),
        (("--epsilon", "1", "--until", "3"), "--until is given with a budget: it must be one of"),
        (("--epsilon", "1", "--squares", "3"), "--squares is given without --until: it says which error is meant"),
        (("--until", "x"), "--until is 'x'"),
        (("--epsilon", "1", "--ledger", "l"), "--ledger without --account"),
    ],
)
def test_mistakes(capsys, words, message):
    publish()
    state = Path("city.state").read_bytes()
    assert refine(*words) == 2
    assert message in said(capsys)
    assert Path("city.state").read_bytes() == state
    assert not Path("city-2.parquet").exists()


def test_files_that_are_in_the_way(capsys):
    publish()
    assert publish() == 2
    assert "exists already" in said(capsys)
    shutil.move("city.parquet", "moved.parquet")
    assert publish() == 2
    assert "state 'city.state' exists already" in said(capsys)
    assert publish("--state", "x.parquet", out="x.parquet") == 2
    assert "--state is 'x.parquet', as --out is" in said(capsys)
    assert refine("--epsilon", "1", release=("moved.parquet",), out="moved.parquet") == 2
    assert refine("--epsilon", "1", release=("moved.parquet",), out="city.state") == 2
    assert "city.state', which is the file that is read" in said(capsys)


@pytest.mark.parametrize("exists", [False, True])
def test_a_ledger_is_not_replaced_by_what_is_published(capsys, exists):
    account = ("--account", "people", "--limit", "2", "--ledger")
    if exists:
        assert publish(*account, "l", "--state", "first.state", out="first.parquet") == 0
    before = Path("l").read_bytes() if exists else None
    assert publish(*account, "l", "--overwrite", out="l") == 2
    assert "--ledger is 'l', as --out is: it keeps what was spent" in said(capsys)
    assert publish(*account, "./city.state") == 2
    assert "--ledger is 'city.state', as --state is" in said(capsys)
    if exists:
        assert refine("--epsilon", "1", *account, "l", "--overwrite", release=("first.parquet",), out="l") == 2
    assert (Path("l").read_bytes() if Path("l").exists() else None) == before
    assert not Path("city.state").exists()


def test_sorted_points(capsys):
    words = ["--x", "x", "--bounds", "0,16", "--delta", "1", "--sorted", "--epsilon", "0.5", "--state", "s.state"]
    assert main(["publish", "visits.csv", *words, "--out", "s.parquet"]) == 0
    assert "s.state, which refines it" in capsys.readouterr().out
    assert main(["refine", "s.parquet", "--state", "s.state", "--epsilon", "1", "--out", "s2.parquet"]) == 0
    assert main(["tighten", "s2.parquet", "--epsilon", "0.2", "--out", "s3.parquet"]) == 0
    assert main(["refine", "s2.parquet", "--state", "s.state", "--until", "3", "--out", "s4.parquet"]) == 2
    assert "--until is given with sorted points" in said(capsys)


def test_a_dry_run_makes_no_state(tmp_path):
    assert publish("--dry-run") == 0
    assert not (tmp_path / "city.state").exists()
