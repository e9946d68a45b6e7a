"""`deltahist publish --state`, `refine` and `tighten`, end to end."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import deltahist as dh


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    xy = np.random.default_rng(5).random((500, 2)) * 16
    pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1]}).to_csv("visits.csv", index=False)
    return tmp_path


def publish(*more, out="city.parquet"):
    words = "--x x --y y --bounds 0,0,16,16 --cell 1 --delta 1 --epsilon 0.5 --strategy identity --state city.state"
    return ["publish", "visits.csv", *words.split(), "--out", out, *more]


def refine(*more, out="city-2.parquet", release=("city.parquet",)):
    return ["refine", *release, "--state", "city.state", "--out", out, *more]


def test_a_chain_from_a_table_to_a_copy(run):
    assert "city.state, which refines it (deltahist refine); as secret as the data" in run(*publish()).out
    out = run(*refine("--epsilon", "2")).out
    assert "all 2 together cost ε = 2, not the sum" in out
    said = run("tighten", "city-2.parquet", "--epsilon", "0.1", "--out", "copy.parquet").out
    assert "a more private copy of release 2 of chain" in said
    run("statement", "copy.parquet", "--out", "copy.html")
    words = "whoever has both, or several copies of it, may learn what the finer one allows, and no more"
    assert words in Path("copy.html").read_text()
    facts = json.loads(run("statement", "copy.parquet", "--json").out)
    assert (facts["epsilon"], facts["chain"]["amounts"], facts["chain"]["copied"]) == (0.1, ["1/2", "2"], "1/10")
    run("statement", "city-2.parquet", "--out", "page.html")
    assert "This is release 2 of a chain of ever finer releases of the same data" in Path("page.html").read_text()


def test_accounts_pay_the_difference(run, refused):
    account = ("--ledger", "l", "--account", "people")
    run(*publish(*account, "--limit", "2"))
    refused(refine("--epsilon", "1.5"), "--ledger and --account are missing: account 'people' paid for this chain")
    message = "'people' of 'l' has ε = 1.5 left and paid 0.5 for this chain, which counts"
    refused(refine("--epsilon", "2.25", *account), message)
    message = "take the ledger that paid"
    refused(refine("--epsilon", "2", "--ledger", "other", "--account", "people", "--limit", "9"), message)
    assert not Path("other").exists()
    said = run(*refine("--epsilon", "2", *account)).out
    assert "'people' has spent ε = 2 of 2, this release with it, and nothing was left" in said


def test_a_state_whose_release_was_paid_for(run, refused):
    account = ("--ledger", "l", "--account", "people")
    run(*publish(*account, "--limit", "2"))
    message = "--ledger and --account are missing: account 'people' paid for this chain"
    refused(refine(release=(), out="again.parquet"), message)
    message = "--limit is missing: account 'people' is new in 'other'"
    refused(refine("--ledger", "other", "--account", "people", release=(), out="again.parquet"), message)
    run(*refine(*account, release=(), out="again.parquet"))
    assert (dh.load("again.parquet").values == dh.load("city.parquet").values).all()


def test_relaxing_until_an_error_is_met(run, refused):
    run(*publish())
    said = run(*refine("--until", "9", "--squares", "4"))
    assert "for an error of 9 points over 2,000 squares of side 4" in said.err
    release = dh.load("city-2.parquet")
    work = dh.workloads.random_squares(4, 2000, release.domain)
    assert 8.9 < release.mechanism.rmse(work) <= 9
    message = "meets, and the release has"
    refused(refine("--until", "9.5", "--squares", "4", out="c.parquet", release=("city-2.parquet",)), message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "none of --epsilon, --rho and --until is given: it must be one of them; without RELEASE"),
        (("--epsilon", "0.5"), "--epsilon is 0.5, but the release has spent 0.5: it must be more"),
        (("--epsilon", "0.1"), "it must be more (a more private copy of a release is what `tighten` makes)"),
        (("--rho", "1"), "rho is given, but the chain spends epsilon"),
        (("--epsilon", "1", "--until", "3"), "--until is given with a budget: it must be one of"),
        (("--epsilon", "1", "--squares", "3"), "--squares is given without --until: it says which error is meant"),
        (("--until", "x"), "--until is 'x'"),
        (("--epsilon", "1", "--ledger", "l"), "--ledger without --account"),
    ],
)
def test_mistakes(refused, words, message, run):
    run(*publish())
    state = Path("city.state").read_bytes()
    refused(refine(*words), message)
    assert Path("city.state").read_bytes() == state
    assert not Path("city-2.parquet").exists()


def test_files_that_are_in_the_way(refused, run):
    run(*publish())
    refused(publish(), "exists already")
    shutil.move("city.parquet", "moved.parquet")
    refused(publish(), "state 'city.state' exists already")
    refused(publish("--state", "x.parquet", out="x.parquet"), "--state is 'x.parquet', as --out is")
    refused(refine("--epsilon", "1", release=("moved.parquet",), out="moved.parquet"))
    message = "city.state', which is the file that is read"
    refused(refine("--epsilon", "1", release=("moved.parquet",), out="city.state"), message)


@pytest.mark.parametrize("exists", [False, True])
def test_a_ledger_is_not_replaced_by_what_is_published(run, refused, exists):
    account = ("--account", "people", "--limit", "2", "--ledger")
    if exists:
        run(*publish(*account, "l", "--state", "first.state", out="first.parquet"))
    before = Path("l").read_bytes() if exists else None
    message = "--ledger is 'l', as --out is: it keeps what was spent"
    refused(publish(*account, "l", "--overwrite", out="l"), message)
    refused(publish(*account, "./city.state"), "--ledger is 'city.state', as --state is")
    if exists:
        refused(refine("--epsilon", "1", *account, "l", "--overwrite", release=("first.parquet",), out="l"))
    assert (Path("l").read_bytes() if Path("l").exists() else None) == before
    assert not Path("city.state").exists()


def test_sorted_points(run, refused):
    words = ["--x", "x", "--bounds", "0,16", "--delta", "1", "--sorted", "--epsilon", "0.5", "--state", "s.state"]
    assert "s.state, which refines it" in run("publish", "visits.csv", *words, "--out", "s.parquet").out
    run("refine", "s.parquet", "--state", "s.state", "--epsilon", "1", "--out", "s2.parquet")
    run("tighten", "s2.parquet", "--epsilon", "0.2", "--out", "s3.parquet")
    message = "--until is given with sorted points"
    refused(["refine", "s2.parquet", "--state", "s.state", "--until", "3", "--out", "s4.parquet"], message)


def test_a_dry_run_makes_no_state(tmp_path, run):
    run(*publish("--dry-run"))
    assert not (tmp_path / "city.state").exists()
