"""`deltahist ledger`: what is shown of accounts, what an audit says."""

import pytest
from sqlalchemy import update

import deltahist as dh
from deltahist.accounts.databases import ACCOUNTS
from deltahist.accounts.ledger import open_account, set_note
from deltahist.cli import main


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request, tmp_path, monkeypatch):
    """A ledger with an account of each kind, as it is named on the command line."""
    monkeypatch.chdir(tmp_path)
    place = "city.ledger" if request.param == "SQLite" else request.getfixturevalue("postgres_url")
    ledger = dh.Ledger(place)
    ledger.open("visits, May", epsilon=3)
    ledger.charge("visits, May", 1.25, key="a map")
    dh.accounts.Window(7, rho=0.5, ledger=ledger, name="stream").charge(3, 0.1)
    with ledger.transaction() as connection:
        open_account(connection, "people", {"kind": "purses", "unit": "epsilon"})
        set_note(connection, "people", "names", "Ann 99999")
    return place


def run(capsys, *words, status=0):
    assert main(["ledger", *words]) == status
    said = capsys.readouterr()
    for private in ("99999", "Ann", "a map"):
        assert private not in said.out + said.err
    return said


def test_audits(where, capsys):
    assert "3" in run(capsys, "audit", where).out
    ledger = dh.Ledger(where)
    with ledger.transaction() as connection:
        connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.name == "visits, May").values(spent=10**9))
    said = run(capsys, "audit", where, status=2)
    assert said.out == ""
    assert "wrong: account 'visits, May'" in said.err


def test_what_is_not_there_is_not_made(tmp_path, monkeypatch, capsys, postgres_url):
    monkeypatch.chdir(tmp_path)
    for where in ("nobody.ledger", postgres_url):
        for command in ("show", "audit"):
            assert "does not exist" in run(capsys, command, where, status=2).err
    assert list(tmp_path.iterdir()) == []
    assert not dh.Ledger.exists(postgres_url)


def test_an_account_and_the_limit_of_its_people(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["open", "city.ledger", "visits", "--epsilon", "1", "--population", "Zürich", "--population-limit", "3/2"]
    for _ in range(2):
        assert "0 of 1" in run(capsys, *words).out
    run(capsys, *words[:-1], "2", status=2)
    run(capsys, *words[:-2], "--rho", "1", status=2)
    assert dh.Ledger("city.ledger").read_standing("visits").population.sums == (("epsilon", 0, 1, 1),)
