"""server/release_routes.py: folders of steps, their periods and changes, and folders that are no series."""

import shutil

import numpy as np
import pytest
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.mechanisms.base import Step
from deltahist.preprocessing import Clock
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from tests.server.conftest import check_problem

DAYS = Clock.of("2010-05-01", "1d")
#: Cells that are cut.
BOX = [0.5, 1.2, 6.3, 4.9]
CITY = "/series/city"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six days of a stream, of which the fourth is missing."""
    folder = tmp_path_factory.mktemp("streams") / "city"
    folder.mkdir()
    near = dh.Neighbourhood(dh.Domain((0, 0, 8, 6), (8, 6)), 1, "boundary")
    strategy, rng = dh.strategies.Identity(near.domain), np.random.default_rng(1)
    window = dh.accounts.Window(3, epsilon=1)
    for day in (0, 1, 2, 4, 5):
        plain = dh.Mechanism(near, strategy, dh.Budget(0.25 if day == 1 else 0.125))
        mechanism = plain.with_changes(step=Step(DAYS, day, 3, dh.Budget(1)))
        release = dh.publishers.publish_mechanism(
            mechanism, rng.poisson(9 + day, (8, 6)), account=dh.accounts.Account(window, day)
        )
        release.save(folder / f"{DAYS.label(day)}.parquet")
    return folder


@pytest.fixture(scope="module")
def client(folder, published):
    with TestClient(create_app(Catalogue([folder, published]))) as client:
        yield client


def ask(client, **asked):
    return client.get(f"{CITY}/answer", params={"bbox": ",".join(map(str, BOX)), **asked})


@pytest.mark.parametrize("mean", [False, True])
def test_a_period_is_answered_with_the_error_of_all_its_steps(client, folder, mean):
    period = dh.Series.load(folder).between("2010-05-01", "2010-05-03")
    expected = dh.answer(period.per_step() if mean else period, [BOX], level=0.9).iloc[0]
    asked = {"between": "2010-05-01,2010-05-03", "level": 0.9, "mean": mean}
    found = ask(client, **asked).json()
    assert {name: found[name] for name in expected.index} == pytest.approx(expected.to_dict())
    assert (found["between"], found["series"], found["steps"]) == (["2010-05-01", "2010-05-03"], "city", 3)
    assert found["per"] == ("step" if mean else "period")
    many = client.post(f"{CITY}/answers", params=asked, json={"boxes": [BOX, BOX]})
    assert many.json()["std_error"] == [found["std_error"]] * 2


def test_missing_steps_are_named_and_left_out_only_if_asked(client, folder):
    check_problem(ask(client), 400, "which does not mean that they are empty: 2010-05-04")
    found = ask(client, missing="skip").json()
    expected = dh.answer(dh.Series.load(folder).skip_missing(), [BOX]).iloc[0]
    assert {name: found[name] for name in expected.index} == pytest.approx(expected.to_dict())
    assert (found["missing"], found["steps"]) == (["2010-05-04"], 5)


def test_a_withdrawn_step_is_missing(folder, tmp_path):
    dh.withdraw(shutil.copytree(folder, tmp_path / "city") / "2010-05-02.parquet", "wrong column")
    missing = ["2010-05-02", "2010-05-04"]
    with TestClient(create_app(Catalogue([tmp_path / "city"]))) as client:
        assert client.get(CITY).json()["missing"] == missing
        check_problem(ask(client), 400, "2010-05-02 (withdrawn on ")
        found = ask(client, missing="skip").json()
        assert (found["steps"], found["missing"]) == (4, missing)


def test_a_series_says_what_all_its_steps_cost_together(client):
    """Five steps cost ε = 0.75 together, and a guess from all of them is right in e^0.75 : 1 cases."""
    found = client.get("/series").json()["series"][0]
    assert (found["together"]["epsilon"], len(found["published"])) == (0.75, 5)
    assert "ε = 0.75" in found["cost"]
    told = client.get(f"{CITY}/explanation").json()
    assert "each of 5 steps" in told["distances"][0]["text"]
    at_delta = next(each["guess"] for each in told["distances"] if each["distance"] == 1)
    assert at_delta == pytest.approx(1 / (1 + np.exp(-0.75)), abs=1e-9)
    page = client.get(CITY, headers={"accept": "text/html"}).text
    assert page.startswith("<!DOCTYPE html>")
    assert "ε = 0.75" in page
    assert "68 of 100 cases" in page
    assert "53.2 of 100" not in page  # what one step costs


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({"between": "2010-05-02,2010-05-01"}, 400, "has no release: it must have at least one"),
        ({"between": "May,June"}, 400, "'May'"),
        ({"between": "0001-01-01,9999-12-31"}, 400, "steps is 3652059"),
        ({"between": "2010-05-01,2010-05-02", "compare": "2010-05-02,2010-05-03"}, 400, "share data and noise"),
        ({"missing": "zero"}, 400, "missing is 'zero'"),
    ],
)
def test_periods_that_cannot_be_are_refused(client, asked, status, said):
    check_problem(ask(client, **asked), status, said)
