"""server/answer_routes.py: one release less another, and releases that must not be compared."""

import shutil

import numpy as np
import pytest
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.releases.series import Difference
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from tests.server.conftest import BOUNDS, DEGREES, check_problem

#: Cells that are cut.
BOX = [BOUNDS[0] + 700, BOUNDS[1] + 900, BOUNDS[0] + 5100, BOUNDS[1] + 4300]
COMPARED = "/releases/city/answer"
BBOX = ",".join(map(str, DEGREES))


@pytest.fixture(scope="module")
def catalogue(published, tmp_path_factory):
    """The releases with a later one, and a more private copy of that."""
    folder = shutil.copytree(published, tmp_path_factory.mktemp("compared") / "published")
    near = dh.Neighbourhood(dh.Domain(BOUNDS, (16, 16), "EPSG:32618"), delta=1000)
    later = dh.publish(np.random.default_rng(2).poisson(30, (16, 16)), near, "tents", epsilon=0.5)
    later.save(folder / "later.parquet")
    dh.tighten(later, epsilon=0.25).save(folder / "copy.parquet")
    return Catalogue([folder])


@pytest.fixture(scope="module")
def client(catalogue):
    with TestClient(create_app(catalogue)) as client:
        yield client


def ask(client, box=DEGREES, **asked):
    return client.get(COMPARED, params={"bbox": ",".join(map(str, box)), "compare": "later", **asked})


@pytest.mark.parametrize(("box", "crs"), [(BOX, "EPSG:32618"), (DEGREES, "CRS84")])
def test_a_difference_has_the_errors_of_both(client, catalogue, box, crs):
    found = ask(client, box, crs=crs, level=0.9).json()
    city, later = (catalogue.find(name).release for name in ("city", "later"))
    expected = dh.answer(Difference(city, later), [box], level=0.9).iloc[0]
    assert (found["difference"], found["compare"], found["release"]) == ("later minus city", "later", "city")
    for name, value in expected.items():
        assert found[name] == value
    before, after = (dh.answer(each, [box], level=0.9).iloc[0] for each in (city, later))
    assert found["estimate"] == pytest.approx(after["estimate"] - before["estimate"])
    assert found["noise_error"] == pytest.approx(np.hypot(before["noise_error"], after["noise_error"]))
    assert found["placement_error"] == pytest.approx(before["placement_error"] + after["placement_error"])


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("later/answer?compare=copy", 400, "they share data and noise"),
        ("city/answer?compare=line", 400, "same cells"),
        ("city/answer?compare=nowhere", 404, "compare is 'nowhere'"),
        ("city/answer?compare=later&nonnegative=true", 400, "a difference can be negative"),
    ],
)
def test_what_cannot_be_compared_is_refused(client, path, status, said):
    check_problem(client.get(f"/releases/{path}&bbox={BBOX}"), status, said)
