"""`deltahist withdraw`, `publish --replaces`, and every command that heeds a notice."""

import datetime
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import deltahist as dh

REASON = "the column of longitudes was wrong"
PLACE = ["--x", "x", "--y", "y", "--bounds", "0,0,80,80", "--cell", "10", "--delta", "10"]
HOW = [*PLACE, "--strategy", "identity", "--limit", "any:none", "--epsilon", "1"]
PAID = ["--ledger", "city.ledger", "--account", "visits"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a table, a release that an account paid for, its ledger, and a release that none paid for."""
    folder = tmp_path_factory.mktemp("made")
    points = np.random.default_rng(1).uniform(0, 80, (200, 2))
    np.savetxt(folder / "visits.csv", points, delimiter=",", header="x,y", comments="")
    near, counts = dh.Neighbourhood(dh.Domain((0, 0, 80, 80), (8, 8)), 10), np.full((8, 8), 3)
    account = dh.Account.total(epsilon=3, ledger=folder / "city.ledger", name="visits")
    dh.publish(counts, near, "identity", 1, account=account).save(folder / "city.parquet")
    dh.publish(counts, near, "identity", 1).save(folder / "free.parquet")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def notice(name="city"):
    return json.loads(Path(f"{name}.withdrawn.json").read_text(encoding="utf-8"))


def test_a_withdrawal_is_in_the_ledger_and_beside_the_file(folder, run):
    before = dh.Ledger("city.ledger").charges("visits")
    said = run("withdraw", "city.parquet", "--reason", REASON, "--ledger", "city.ledger")
    assert "has spent ε = 1 of 3, which stays spent: the release was seen; 2 is left" in said.out
    today = datetime.date.today().isoformat()
    with pytest.warns(dh.DeltaHistWarning, match=REASON):
        digest = dh.load("city.parquet").digest
    found = notice()
    assert "SHA-256" in found.pop("readme")
    assert found == {
        "format": "deltahist-withdrawal", "version": 1, "digest": digest,
        "reason": REASON, "date": today, "replacement": None,
    }  # fmt: skip
    assert dh.Ledger("city.ledger").charges("visits") == before
    for words in (["show"], ["audit"], ["export"], ["show", "--json"], ["export", "--format", "json"]):
        shown = run("ledger", words[0], "city.ledger", *words[1:]).out
        assert REASON in shown, words
        assert today in shown, words
        assert "city.parquet" in shown, words


def test_it_is_run_again_to_do_the_rest_and_changes_nothing_else(folder, run, refused):
    note = run("withdraw", "city.parquet", "--reason", REASON).err
    assert "account 'visits' paid for city.parquet" in note
    (written,) = {file.read_bytes() for file in folder.glob("*.json")}
    old = written.replace(datetime.date.today().isoformat().encode(), b"2026-01-31")
    (folder / "city.withdrawn.json").write_bytes(old)
    for _ in range(2):
        run("withdraw", "city.parquet", "--reason", f" {REASON} ", "--ledger", "city.ledger")
        assert (folder / "city.withdrawn.json").read_bytes() == old
    (kept,) = dh.Ledger("city.ledger").standing("visits").withdrawn
    assert kept["date"] == "2026-01-31"
    (folder / "city.withdrawn.json").unlink()  # as after a kill between the two
    run("withdraw", "city.parquet", "--reason", REASON)
    run("withdraw", "city.parquet", "--reason", REASON, "--ledger", "city.ledger")
    assert notice()["date"] == "2026-01-31"
    refused(["withdraw", "city.parquet", "--reason", "another"], "--reason is 'another'", REASON, "2026-01-31")
    (folder / "city.withdrawn.json").unlink()
    line = ["withdraw", "city.parquet", "--reason", "another", "--ledger", "city.ledger"]
    refused(line, "--reason is 'another'", REASON)
    assert not (folder / "city.withdrawn.json").exists()


def test_a_ledger_that_did_not_pay_is_refused_and_nothing_is_written(folder, run, refused):
    near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), 1)
    dh.Ledger("others.ledger").open("people", epsilon=3)
    for name, limit in (("less", 3), ("limit", 4)):
        account = dh.Account.total(epsilon=limit, ledger=f"{name}.ledger", name="visits")
        dh.publish(np.ones(8, dtype=int), near, "identity", 0.5, account=account)
    withdraw = ["withdraw", "city.parquet", "--reason", REASON, "--ledger"]
    refused([*withdraw, "none.ledger"], "none.ledger' does not exist")
    assert not (folder / "none.ledger").exists()
    refused([*withdraw, "others.ledger"], "has no account 'visits'")
    refused([*withdraw, "less.ledger"], "its account 'visits' has spent less", "did not pay for the release")
    refused([*withdraw, "limit.ledger"], "its account 'visits' has another unit or limit")
    refused(["withdraw", "free.parquet", "--reason", REASON, "--ledger", "city.ledger"], "no account paid")
    for text in ("  ", "two\nlines", "x" * 1001):
        refused(["withdraw", "city.parquet", "--reason", text], "--reason is")
    assert list(folder.glob("*.json")) == []


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
    today = datetime.date.today().isoformat()
    refused([command, "city.parquet", *rest], f"city.parquet was withdrawn on {today}: {REASON}", "nothing replaces it")
    assert not (folder / rest[1]).exists()


def test_a_statement_says_it_at_the_top(folder, run):
    run("withdraw", "free.parquet", "--reason", REASON)
    for line in (["statement", "free.parquet"],):
        assert run(*line).out.startswith(f"WITHDRAWN on {datetime.date.today()}: {REASON}")
    facts = json.loads(run("statement", "free.parquet", "--json").out)
    assert facts["withdrawn"]["reason"] == REASON
    assert facts["may_be_published"].startswith("no: withdrawn")
    run("statement", "free.parquet", "--out", "a.md")
    first = (folder / "a.md").read_text(encoding="utf-8").split("\n\n")[1]
    assert first.startswith(f"**May be published: no.** WITHDRAWN on {datetime.date.today()}: {REASON}")


@pytest.mark.parametrize("way", ["map", "sorted"])
def test_a_corrected_release_and_the_old_one_name_each_other(way, folder, run, refused):
    line = ["publish", "visits.csv", *HOW, *PAID, "--replaces", "city.parquet", "--reason", REASON]
    if way == "sorted":
        line = ["publish", "visits.csv", "--x", "x", "--bounds", "0,80", "--cell", "10", "--delta", "10", "--sorted",
                "--epsilon", "1", *PAID, "--replaces", "city.parquet", "--reason", REASON]  # fmt: skip
    cost = "all of it again: ε = 1, since both releases are about the same people and a reader can compare them"
    if way == "map":
        said = run(*line, "--out", "new.parquet", "--dry-run", "--write-config", "a.toml")
        assert f"{cost}; for moves within the δ of both together ε = 2\n" in said.err
        assert "replaces" not in (folder / "a.toml").read_text(encoding="utf-8")  # it is about this run alone
        assert "Replaces " in said.out
        assert list(folder.glob("*.json")) == []
    said = run(*line, "--out", "new.parquet")
    assert cost in said.err
    assert "has spent ε = 2 of 3" in said.out
    old, new = json.loads(run("statement", "city.parquet", "--json").out), dh.load("new.parquet")
    assert notice()["replacement"] == {"digest": new.digest, "file": "new.parquet"} == old["withdrawn"]["replacement"]
    assert new.facts()["replaces"] == {"digest": old["digest"], "reason": REASON}
    statement = run("statement", "new.parquet").out
    assert old["digest"] in statement
    assert REASON in statement
    run("statement", "new.parquet", "--out", "new.md")
    assert (folder / "new.md").read_text(encoding="utf-8").count(old["digest"]) == 2  # in plain words, too
    (kept,) = dh.Ledger("city.ledger").standing("visits").withdrawn
    assert kept["replacement"]["file"] == "new.parquet"
    refused(["query", "city.parquet", "--box", "0,0,40,40"], "use new.parquet instead", new.digest)
    refused([*line, "--out", "third.parquet"], "city.parquet is replaced by new.parquet already")
    assert dh.Ledger("city.ledger").spent("visits") == 2


def test_cheap_mistakes_of_a_correction_come_first(folder, run, refused, monkeypatch):
    line = ["publish", "visits.csv", *HOW, "--reason", REASON, "--out"]
    monkeypatch.setattr("deltahist.counting.count_file", None)
    refused([*line, "new.parquet"], "--replaces and --reason go together")
    refused([*line[:-3], "--replaces", "city.parquet", "--out", "new.parquet"], "--replaces and --reason go together")
    refused([*line, "new.parquet", "--replaces", "none.parquet"], "none.parquet' does not exist")
    refused([*line, "new.parquet", "--replaces", "visits.csv"], "not a readable Parquet file")
    refused([*line, "city.parquet", "--overwrite", "--replaces", "city.parquet"], "which is the file that is read")
    run("withdraw", "city.parquet", "--reason", "another")
    refused([*line, "new.parquet", "--replaces", "city.parquet"], "withdrawn on", "'another'")
    refused([*line[:-3], "--overwrite", "--out", "city.parquet"], "a release of that name was withdrawn")
    paid = ["--ledger", "others.ledger", "--account", "visits", "--account-limit", "3"]
    dh.Ledger("others.ledger").open("visits", epsilon=3)
    refused([*line, "new.parquet", "--replaces", "city.parquet", *paid], "'another'")
    (folder / "city.withdrawn.json").unlink()
    refused([*line, "new.parquet", "--replaces", "city.parquet", *paid], "did not pay for the release")
    assert not (folder / "new.parquet").exists()
    assert dh.Ledger("others.ledger").spent("visits") == 0


def test_a_correction_that_breaks_off_is_ended_by_hand(folder, run, refused, monkeypatch):
    from deltahist.releases.notices import Notice

    line = ["publish", "visits.csv", *HOW, *PAID, "--replaces", "city.parquet", "--reason", REASON]

    def fail(*_):
        raise dh.InputError("no room is left")

    with monkeypatch.context() as patch:
        patch.setattr(Notice, "save", fail)
        said = refused([*line, "--out", "new.parquet"], "is published, but city.parquet is not withdrawn yet")
    command = re.search(r"not withdrawn yet: deltahist (.*)", said)[1]
    assert dh.Ledger("city.ledger").spent("visits") == 2
    refused(["withdraw", "city.parquet", "--reason", REASON, "--replacement", "free.parquet"], "does not say")
    run(*shlex.split(command))
    assert notice()["replacement"]["file"] == "new.parquet"
    assert dh.Ledger("city.ledger").spent("visits") == 2


def test_another_account_may_pay_for_a_corrected_release(folder, run):
    other = ["--ledger", "other.ledger", "--account", "more", "--account-limit", "2"]
    run("publish", "visits.csv", *HOW, *other, "--out", "new.parquet", "--replaces", "city.parquet", "--reason", REASON)
    assert notice()["replacement"]["file"] == "new.parquet"
    assert dh.Ledger("city.ledger").standing("visits").withdrawn == ()
    assert dh.Ledger("other.ledger").spent("more") == 1


def test_costs_of_corrections_add_up_in_each_unit(folder, run, tmp_path):
    near, counts = dh.Neighbourhood(dh.Domain((0, 0, 80, 80), (8, 8)), 10), np.full((8, 8), 3)
    first = dh.publish(counts, near, "identity", rho=0.1, state="a.state")
    dh.refine(first, "a.state", rho=0.25).save("fine.parquet")
    dh.tighten(dh.load("fine.parquet"), state="a.state", rho=0.05).save("copy.parquet")
    for old in ("fine", "copy"):  # a copy tells no more than the release that it was made of
        said = run("publish", "visits.csv", *HOW, "--dry-run", "--out", "new.parquet", "--reason", REASON,
                   "--replaces", f"{old}.parquet").err  # fmt: skip
        assert "together ρ = 0.25 and ε = 1, and more if a finer one of its chain was published\n" in said


def test_costs_of_corrections_tell_of_failures_and_of_what_was_replaced_before(folder, run):
    line = ["publish", "visits.csv", *PLACE, "--epsilon", "1", "--reason", REASON]
    second = run(*line, "--probability", "1e-6", "--replaces", "free.parquet", "--out", "second.parquet").err
    assert "together ε = 2 but for a probability of 1e-06\n" in second
    third = run(*line, "--replaces", "second.parquet", "--out", "third.parquet", "--dry-run").err
    assert third.endswith(", besides the release that the old one replaced\n")


def test_a_withdrawn_step_is_missing_and_is_named(folder, run, refused):
    near, days = dh.Neighbourhood(dh.Domain((0, 0, 80, 80), (8, 8)), 10, "boundary"), ("01", "02", "03")
    (folder / "days").mkdir()
    for day in days:
        dh.publish(np.full((8, 8), 3), near, "identity", 1).save(f"days/2010-05-{day}.parquet")
    run("withdraw", "days/2010-05-03.parquet", "--reason", REASON)
    ask = ["query", "days", "--box", "0,0,40,40"]
    refused(ask, f"1 of 3 steps have no release: 2010-05-03 (withdrawn on {datetime.date.today()}: {REASON}")
    said = run(*ask, "--skip-missing", "--json")
    assert json.loads(said.out)["answers"][0]["steps"] == 2
    assert "2010-05-03 (withdrawn on" in said.err
    for day in days[:2]:
        run("withdraw", f"days/2010-05-{day}.parquet", "--reason", REASON)
    refused(ask, "there must be at least one (3 were withdrawn)")


def test_a_step_of_a_stream_is_withdrawn_and_not_replaced(folder, run, refused):
    lines = [f"2010-05-0{day},{x},40" for day in (1, 2, 3) for x in range(5, 80, 10)]
    (folder / "days.csv").write_text("time,x,y\n" + "\n".join(lines) + "\n")
    run("stream", "days.csv", *PLACE, "--time", "time", "--start", "2010-05-01", "--every", "1d", "--window", "2",
        "--epsilon", "1", "--until", "2010-05-04", "--out", "days", "--state", "days.state",
        "--sources", "boundary", "--strategy", "identity", "--anyway")  # fmt: skip
    old = ["--replaces", "days/2010-05-02.parquet", "--reason", REASON]
    refused(["publish", "visits.csv", *HOW, "--out", "new.parquet", *old], "step 2010-05-02 of a stream", "withdraw it")
    assert not Path("new.parquet").exists()  # it is told before anything is published
    said = run("withdraw", "days/2010-05-02.parquet", "--reason", REASON, "--ledger", "days.state").out
    assert "which stays spent" in said
    dh.Window(2, epsilon=1, ledger="others.state", name="stream").charge(1, 0.25)
    first = ["withdraw", "days/2010-05-03.parquet", "--reason", REASON, "--ledger", "others.state"]
    refused(first, "did not pay for the release")
