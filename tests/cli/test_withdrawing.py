"""`deltahist withdraw`, `publish --replaces`, and every command that heeds a notice."""

import datetime
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import deltahist as dh
from deltahist.statement import list_facts

REASON = "the longitude column was wrong"
PLACE = ["--x", "x", "--y", "y", "--bounds", "0,0,80,80", "--cell", "10", "--delta", "10"]
HOW = [*PLACE, "--strategy", "identity", "--limit", "any:none", "--epsilon", "1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a table, a release that an account paid for, its ledger, and a release that none paid for."""
    folder = tmp_path_factory.mktemp("made")
    points = np.random.default_rng(1).uniform(0, 80, (200, 2))
    np.savetxt(folder / "visits.csv", points, delimiter=",", header="x,y", comments="")
    near, counts = dh.Neighbourhood(dh.Domain((0, 0, 80, 80), (8, 8)), 10), np.full((8, 8), 3)
    account = dh.accounts.Account.total(epsilon=3, ledger=folder / "city.ledger", name="visits")
    dh.publish(counts, near, "identity", 1, account=account).save(folder / "city.parquet")
    dh.publish(counts, near, "identity", 1).save(folder / "free.parquet")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_withdrawal_is_in_the_ledger_and_beside_the_file(folder, run):
    before = dh.Ledger("city.ledger").list_charges("visits")
    said = run("withdraw", "city.parquet", "--reason", REASON, "--ledger", "city.ledger").out
    assert "account      visits" in said
    found = json.loads(Path("city.withdrawn.json").read_text(encoding="utf-8"))
    assert (found["reason"], found["date"]) == (REASON, datetime.date.today().isoformat())
    assert dh.Ledger("city.ledger").list_charges("visits") == before
    for words in (["show"], ["show", "--json"]):
        assert "city.parquet" in run("ledger", words[0], "city.ledger", *words[1:]).out, words


def test_it_is_run_again_to_do_the_rest(folder, run, refused):
    assert "'visits'" in run("withdraw", "city.parquet", "--reason", REASON).err  # which account paid
    written = Path("city.withdrawn.json").read_bytes()
    run("withdraw", "city.parquet", "--reason", f" {REASON} ", "--ledger", "city.ledger")
    assert Path("city.withdrawn.json").read_bytes() == written
    refused(["withdraw", "city.parquet", "--reason", "another"], REASON)


def test_what_is_refused_writes_nothing(folder, refused):
    refused(["withdraw", "city.parquet", "--reason", REASON, "--ledger", "none.ledger"], "does not exist")
    for text in ("  ", "two\nlines", "x" * 1001):
        refused(["withdraw", "city.parquet", "--reason", text], "reason is")
    assert list(folder.glob("*.json")) == []
    assert not Path("none.ledger").exists()


@pytest.mark.parametrize("command", ["query", "plot", "export", "tighten", "refine"])
def test_commands_that_use_a_release_refuse(command, folder, run, refused):
    rest = {
        "query": ["--box", "0,0,40,40"],
        "plot": ["--out", "a.png"],
        "export": ["--out", "a.csv"],
        "tighten": ["--out", "b.parquet", "--epsilon", "0.5"],
        "refine": ["--out", "b.parquet", "--epsilon", "2", "--state", "city.state"],
    }[command]
    run("withdraw", "city.parquet", "--reason", REASON)
    refused([command, "city.parquet", *rest], "was withdrawn", REASON)
    assert not (folder / rest[1]).exists()


def test_a_statement_says_it_at_the_top(folder, run):
    run("withdraw", "free.parquet", "--reason", REASON)
    assert run("statement", "free.parquet").out.startswith(f"WITHDRAWN on {datetime.date.today()}: {REASON}")
    facts = json.loads(run("statement", "free.parquet", "--json").out)
    assert facts["withdrawn"]["reason"] == REASON
    assert facts["may_be_published"].startswith("no: withdrawn")


def test_a_corrected_release_names_the_old_one(folder, run, refused):
    digest = dh.load("city.parquet").digest
    line = ["publish", "visits.csv", *HOW, "--out", "new.parquet"]
    run(*line, "--replaces", "city.parquet", "--reason", REASON)
    assert list_facts(dh.load("new.parquet"))["replaces"] == {"digest": digest, "reason": REASON}
    assert digest in run("statement", "new.parquet").out
    assert list(folder.glob("*.json")) == []  # the old one is withdrawn by `withdraw`
    refused([*line[:-1], "b.parquet", "--reason", REASON])
    run("withdraw", "city.parquet", "--reason", REASON)
    refused([*line[:-1], "city.parquet"])  # no release under the name of one that was withdrawn
