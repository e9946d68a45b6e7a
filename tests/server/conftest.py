"""Two published releases and a client of their service."""

import numpy as np
import pytest
from fastapi.testclient import TestClient

import deltahist as dh
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from deltahist.server.service import Settings

BOUNDS = (580000, 4500000, 588000, 4508000)


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
