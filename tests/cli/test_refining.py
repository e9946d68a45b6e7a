"""`deltahist publish --state`, `refine` and `tighten`, end to end."""

import json
import shutil
from pathlib import Path

import pytest

import deltahist as dh
from tests.cli.conftest import PLANE

pytestmark = pytest.mark.usefixtures("visits")


def publish(*more, out="city.parquet"):
    return ["publish", "v.csv", *PLANE, "--epsilon", "0.5", "--state", "city.state", "--out", out, *more]


def refine(*more, out="city-2.parquet", release=("city.parquet",)):
    return ["refine", *release, "--state", "city.state", "--out", out, *more]


def test_a_chain_from_a_table_to_a_copy(run):
    run(*publish())
    run(*refine("--epsilon", "2"))
    run("tighten", "city-2.parquet", "--epsilon", "0.1", "--out", "copy.parquet")
    run("statement", "copy.parquet", "--out", "copy.html")
    facts = json.loads(run("statement", "copy.parquet", "--json").out)
    assert (facts["epsilon"], facts["chain"]["amounts"], facts["chain"]["copied"]) == (0.1, ["1/2", "2"], "1/10")
    run("statement", "city-2.parquet", "--out", "page.html")


def test_accounts_pay_the_difference(run, refused):
    account = ("--ledger", "l", "--account", "people")
    run(*publish(*account, "--account-limit", "2"))
    refused(refine("--epsilon", "1.5"))
    refused(refine("--epsilon", "2.25", *account))
    refused(refine("--epsilon", "2", "--ledger", "other", "--account", "people"))
    assert not Path("other").exists()
    run(*refine("--epsilon", "2", *account))
    assert dh.Ledger("l").read_standing("people").left == 0


def test_a_state_whose_release_was_paid_for(run, refused):
    account = ("--ledger", "l", "--account", "people")
    run(*publish(*account, "--account-limit", "2"))
    refused(refine(release=(), out="again.parquet"))
    refused(refine("--ledger", "other", "--account", "people", release=(), out="again.parquet"))
    run(*refine(*account, release=(), out="again.parquet"))
    assert (dh.load("again.parquet").values == dh.load("city.parquet").values).all()


def test_files_that_are_in_the_way(refused, run):
    run(*publish())
    before = Path("city.state").read_bytes()
    refused(publish())
    shutil.move("city.parquet", "moved.parquet")
    refused(publish())
    refused(publish("--state", "x.parquet", out="x.parquet"))
    refused(refine("--epsilon", "1", release=("moved.parquet",), out="moved.parquet"))
    refused(refine("--epsilon", "1", release=("moved.parquet",), out="city.state"))
    assert Path("city.state").read_bytes() == before
    assert not Path("x.parquet").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_a_ledger_is_not_replaced_by_what_is_published(run, refused, exists):
    account = ("--account", "people", "--account-limit", "2", "--ledger")
    if exists:
        run(*publish(*account, "l.parquet", "--state", "first.state", out="first.parquet"))
    before = Path("l.parquet").read_bytes() if exists else None
    refused(publish(*account, "l.parquet", out="l.parquet"))
    refused(publish(*account, "./city.state"))
    if exists:
        paid = ("--epsilon", "1", "--account", "people", "--ledger", "l.parquet")
        refused(refine(*paid, release=("first.parquet",), out="l.parquet"))
    assert (Path("l.parquet").read_bytes() if Path("l.parquet").exists() else None) == before
    assert not Path("city.state").exists()


def test_sorted_points(run):
    words = ["--x", "x", "--bounds", "0,8", "--delta", "1", "--epsilon", "0.5", "--state", "s.state"]
    run("sorted", "v.csv", *words, "--out", "s.parquet")
    run("refine", "s.parquet", "--state", "s.state", "--epsilon", "1", "--out", "s2.parquet")
    run("tighten", "s2.parquet", "--epsilon", "0.2", "--out", "s3.parquet")
