"""Published releases and clients of their services."""

import numpy as np
import pytest
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from deltahist.server.service import Settings

BOUNDS = (580000, 4500000, 588000, 4508000)
#: A box on the map of these.
DEGREES = [-74.02, 40.66, -73.97, 40.70]
#: More cells than there may be features, neither side a power of two.
SHAPE = (90, 75)
DOMAIN = dh.Domain((BOUNDS[0], BOUNDS[1], BOUNDS[0] + 90 * 50, BOUNDS[1] + 75 * 50), SHAPE, "EPSG:32618")


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """A folder with a map in EPSG:32618 and a line without a CRS."""
    folder = tmp_path_factory.mktemp("published")
    counts = np.random.default_rng(1).poisson(20, (16, 16))
    near = dh.Neighbourhood(dh.Domain(BOUNDS, (16, 16), "EPSG:32618"), delta=500)
    dh.publish(counts, near, "flow", epsilon=1).save(folder / "city.parquet")
    line = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    dh.publish(np.arange(8), line, "cumulative", epsilon=1).save(folder / "line.parquet")
    return folder


@pytest.fixture(scope="module")
def catalogue(published):
    return Catalogue([published])


@pytest.fixture(scope="module")
def client(catalogue):
    with TestClient(create_app(catalogue, Settings(max_bytes=100_000, max_boxes=100))) as client:
        yield client


@pytest.fixture(scope="session")
def mapped(tmp_path_factory):
    """Two days on one map, a chain with a more private copy, a plane, sorted points."""
    folder = tmp_path_factory.mktemp("maps")
    near, rng = dh.Neighbourhood(DOMAIN, 100), np.random.default_rng(3)
    rate = np.zeros(SHAPE)
    rate[20:50, 30:60] = 40
    for day in ("today", "yesterday"):
        dh.publish(rng.poisson(rate), near, "flow", epsilon=1).save(folder / f"{day}.parquet")
    cells = dh.publish(rng.poisson(rate), near, "identity", epsilon=0.5, state=folder / "cells.state")
    cells.save(folder / "cells.parquet")
    dh.tighten(cells, epsilon=0.25, state=folder / "cells.state").save(folder / "copy.parquet")
    dh.refine(cells, folder / "cells.state", epsilon=1).save(folder / "finer.parquet")
    plane = dh.Neighbourhood(dh.Domain((10, 0, 26, 8), (16, 8)), 1)
    dh.publish(rng.poisson(9, (16, 8)), plane, "flow", epsilon=1).save(folder / "plane.parquet")
    line = dh.Neighbourhood(dh.Domain((0, 100), (20,)), 5)
    dh.publishers.publish_sorted([31, 8, 64, 47], line, epsilon=1).save(folder / "sorted.parquet")
    return folder


@pytest.fixture(scope="module")
def maps(mapped):
    return Catalogue([mapped])


@pytest.fixture(scope="module")
def atlas(maps):
    with TestClient(create_app(maps)) as client:
        yield client


def check_problem(answer, status, said):
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    document = answer.json()
    assert document["status"] == status
    assert said in document["detail"]
    assert "Traceback" not in answer.text
