"""Notices are heeded wherever releases are read, and are untrusted input."""

import json
import re
import warnings

import numpy as np
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.statement import list_facts
from tests.storage import bucket, upload

NEAR = dh.Neighbourhood(dh.Domain((0, 8), (8,)), 1, "boundary")
REASON = "wrong column <b> & co."


def save(path, **more):
    dh.publish(np.arange(8), NEAR, "identity", 1, **more).save(path)
    return path


@pytest.fixture
def city(tmp_path):
    return save(tmp_path / "city.parquet")


def test_a_release_that_is_withdrawn_is_warned_of_and_works(city):
    before = dh.load(city)
    dh.withdraw(city, REASON)
    with pytest.warns(dh.errors.DeltaHistWarning, match="city.parquet was withdrawn on .*: wrong column"):
        release = dh.load(city)
    assert "WITHDRAWN" in repr(release)
    assert dh.answer(release, [[0, 4]]).equals(dh.answer(before, [[0, 4]]))
    assert release.may_be_published.startswith("no: withdrawn")
    assert (release.digest, release.publishable) == (before.digest, True)  # the file did not change


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[" * 100_000,
        {"version": 9},
        {"digest": "0" * 64},
        {"reason": "wrong\x1b[2J"},  # steers a terminal
        {"date": "yesterday"},
    ],
    ids=lambda bad: str(bad)[:30],
)
def test_a_damaged_notice_is_an_error(city, bad):
    dh.withdraw(city, "wrong column")
    place = city.with_name("city.withdrawn.json")
    good = json.loads(place.read_text(encoding="utf-8"))
    place.write_text(json.dumps(good | bad) if isinstance(bad, dict) else bad, encoding="utf-8")
    with pytest.raises(dh.DamagedFile):
        dh.load(city)
    assert main(["query", str(city), "--box", "0,4"]) == 2


def test_the_ledger_that_paid_keeps_a_line(tmp_path):
    ledger = dh.Ledger(tmp_path / "l")
    account = dh.accounts.Account.total(epsilon=3, ledger=ledger, name="visits")
    path = tmp_path / "city.parquet"
    release = dh.publish(np.arange(8), NEAR, "identity", 1, account=account)
    release.save(path)
    other = dh.Ledger(tmp_path / "other")
    other.open("visits", epsilon=4)
    for wrong in (other, tmp_path / "none"):
        with pytest.raises(dh.InputError):
            dh.withdraw(path, "wrong column", ledger=wrong)
    assert not (tmp_path / "city.withdrawn.json").exists()
    for _ in range(2):
        notice = dh.withdraw(path, "wrong column", ledger=ledger)
    (line,) = ledger.read_standing("visits").withdrawn
    assert line == {"file": "city.parquet", "digest": release.digest, "reason": "wrong column", "date": notice.date}
    assert (ledger.spent("visits"), ledger.find_problems()) == (1, [])
    alone = save(tmp_path / "alone.parquet")
    with pytest.raises(dh.InputError, match="no account paid"):
        dh.withdraw(alone, "wrong column", ledger=ledger)


def test_withdrawn_steps_are_missing(tmp_path):
    for step in range(4):
        save(tmp_path / f"{step}.parquet")
    dh.withdraw(tmp_path / "0.parquet", "wrong column")
    dh.withdraw(tmp_path / "2.parquet", "wrong column")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        series = dh.Series.load(tmp_path)
    assert series.missing_steps == ["0", "2"]
    assert list_facts(series)["series"]["together"]["epsilon"] == 4  # what was spent stays spent
    assert re.search(r": 0 \(withdrawn on .*\), 2 \(withdrawn on .*\)$", series.explain_missing())
    with pytest.raises(dh.InputError, match="2 of 4 steps"):
        dh.answer(series, [[0, 4]])
    assert dh.answer(series.skip_missing(), [[0, 4]])["steps"].tolist() == [2]
    period = series.between("1", "2")
    assert period.missing_steps == ["2"]


def test_notices_in_object_storage_are_heeded(city, tmp_path, capsys):
    save(tmp_path / "other.parquet")
    dh.withdraw(city, "wrong column")
    with bucket() as (storage, _):
        stored = upload(tmp_path, storage, "maps")
        with pytest.warns(dh.errors.DeltaHistWarning, match="s3://city/maps/city.parquet was withdrawn on"):
            dh.load(f"{stored}/city.parquet")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dh.load(f"{stored}/other.parquet")
        assert main(["query", f"{stored}/city.parquet", "--box", "0,4"]) == 2
        assert "was withdrawn" in capsys.readouterr().err
