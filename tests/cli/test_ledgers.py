"""`deltahist ledger`: what is shown of accounts, what an audit says, and reports of them."""

import csv
import io
import json

import pytest

import deltahist as dh
from deltahist.accounts import databases
from deltahist.cli import main


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request, tmp_path, monkeypatch):
    """A ledger with an account of each kind, as it is named on the command line."""
    monkeypatch.chdir(tmp_path)
    place = "city.ledger" if request.param == "SQLite" else request.getfixturevalue("postgres_url")
    ledger = dh.Ledger(place)
    ledger.open("visits, May", epsilon=3)
    ledger.charge("visits, May", 1.25, key="a map", request={"secret words": 1})
    ledger.open("gauss", epsilon=1, probability=1e-6)
    ledger.charge("gauss", dh.Budget(0.5, probability=1e-7))
    dh.Window(7, rho=0.5, ledger=ledger, name="stream").charge(3, 0.1)
    with ledger.transaction() as change:
        change.open("people", {"kind": "purses", "unit": "epsilon"})
        change.charge("people", 77_777, 88_888)
        change.store("people", "names", "Ann 99999")
    yield place
    for engine in databases._ENGINES.values():
        engine.dispose()


def run(capsys, *words, status=0):
    assert main(["ledger", *words]) == status
    said = capsys.readouterr()
    for private in ("77777", "77,777", "88888", "8.8888e-05", "99999", "Ann", "secret"):
        assert private not in said.out + said.err
    return said


def test_show_is_what_is_meant_where_nothing_is_said(where, capsys):
    shown = run(capsys, "show", where).out
    assert run(capsys, where).out == shown
    rows = [" ".join(line.split()) for line in shown.splitlines()[2:]]
    assert rows == [
        "gauss altogether ε = 1 ε = 0.5 ε = 0.5",
        "but for 1e-06 1e-07 9e-07",
        "people of each person in ε",
        "stream in 7 steps ρ = 0.5 ρ = 0.1 ρ = 0.4",
        "visits, May altogether ε = 3 ε = 1.25 ε = 1.75",
        "together for who is in all ε = 4 ε = 1.75 ε = 2.25",
    ]
    first, people, stream, _ = json.loads(run(capsys, "--json", where).out)
    assert (first["probability"], first["probability_spent"]) == (1e-6, 1e-7)
    assert people == {"account": "people", "unit": "epsilon", "steps": None, "kind": "purses"}
    assert stream == {"account": "stream", "unit": "rho", "steps": 7, "limit": 0.5, "spent": 0.1, "left": 0.4}


def test_a_report_holds_budgets_and_nothing_else(where, capsys, tmp_path):
    said = run(capsys, "export", where).out
    rows = list(csv.DictReader(io.StringIO(said)))
    assert ",".join(rows[0]) == "account,kind,unit,steps,limit,spent,left,probability,probability_spent,withdrawn"
    assert [list(row.values()) for row in rows[1:]] == [
        ["people", "purses", "epsilon", "", "", "", "", "", "", ""],
        ["stream", "window", "rho", "7", "0.5", "0.1", "0.4", "", "", ""],
        ["visits, May", "total", "epsilon", "", "3.0", "1.25", "1.75", "", "", ""],
    ]
    assert run(capsys, "export", where, "--out", "a.csv").out == ""
    assert (tmp_path / "a.csv").read_text() == said
    run(capsys, "export", where, "--out", "a.json")
    as_json = run(capsys, "export", where, "--format", "json").out
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(as_json)
    assert [row["kind"] for row in json.loads(as_json)] == [row["kind"] for row in rows]


def test_a_ledger_in_order(where, capsys):
    said = run(capsys, "audit", where)
    assert said.out.endswith("is in order, accounts: 4, none above its limit\n")
    assert said.err == ""


def test_a_ledger_that_cannot_be_right(where, capsys):
    ledger = dh.Ledger(where)
    with ledger.transaction() as change:
        change.charge("gauss", 0, 10**9)
        change.open("new", {"kind": "stock"})
    before = ledger.charges("gauss")
    said = run(capsys, "audit", where, status=2)
    assert said.out == ""
    assert said.err.splitlines()[:-1] == [
        "wrong: account 'gauss' has spent 1.5, more than its limit, 1",
        "wrong: account 'new' is of kind 'stock', which this program does not know (a newer version's?): update it",
    ]
    assert "is not in order, problems: 2; publish nothing from it" in said.err.splitlines()[-1]
    assert dh.Ledger(where).charges("gauss") == before


def test_what_is_not_there_is_not_made(tmp_path, monkeypatch, capsys, postgres_url):
    monkeypatch.chdir(tmp_path)
    for where in ("nobody.ledger", postgres_url):
        for command in ("show", "audit", "export"):
            assert f"ledger {where!r} does not exist" in run(capsys, command, where, status=2).err
    assert list(tmp_path.iterdir()) == []
    assert not dh.Ledger.exists(postgres_url)


def test_a_ledger_is_not_replaced_by_its_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dh.Ledger("city.ledger").open("city", epsilon=1)
    assert "is the file that is read" in run(capsys, "export", "city.ledger", "--out", "city.ledger", status=2).err
    assert list(dh.Ledger("city.ledger").accounts()) == ["city"]
