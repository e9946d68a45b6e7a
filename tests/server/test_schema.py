"""Whatever is asked within /openapi.json, no answer fails or differs from its description (schemathesis)."""

import copy

import geopandas as gpd
import numpy as np
import pytest
import schemathesis
import shapely
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks

import deltahist as dh
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from deltahist.server.districts import Districts
from deltahist.server.service import Settings
from tests.server.conftest import BOUNDS, DEGREES

#: Values that can be answered: by chance alone hardly any could.
LIKELY = {
    "name": ["city", "line"],
    "stream": ["stream"],
    "between": ["2010-05-01,2010-05-02", "2010-05-02,2010-05-02"],
    "number": ["0", "255"],
    "datetime": ["2010-05-01"],
    "bbox": ["-74.02,40.66,-73.97,40.70", "0,8"],
    "crs": ["EPSG:32618", "CRS84"],
    "level": [0.5, 0.95],
    "compare": ["line"],
    "boxes": [[DEGREES], [list(BOUNDS)], [[0, 8], [1, 2]]],
}
CHECKED = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def app(published, tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams") / "stream"
    folder.mkdir()
    near = dh.load(published / "city.parquet").neighbourhood
    for day in ("2010-05-01", "2010-05-02"):
        dh.publish(np.full((16, 16), 9), near, "flow", epsilon=1).save(folder / f"{day}.parquet")
    shape = shapely.Point(-74.05, 40.65).buffer(0.02)
    districts = Districts(gpd.GeoDataFrame({"name": ["round"]}, geometry=[shape], crs="EPSG:4326"))
    return create_app(Catalogue([published, folder]), Settings(max_boxes=1_000, districts=districts))


def described(app, likely):
    """The service's description with some values: at least ids are those of releases, as others find only 404."""
    named = copy.deepcopy(app.openapi())
    for operation in (each for path in named["paths"].values() for each in path.values()):
        parameters = {each["name"]: each for each in operation.get("parameters", [])}
        for body in operation.get("requestBody", {}).get("content", {}).values():
            parameters |= {name: {"schema": schema} for name, schema in body["schema"]["properties"].items()}
        for name in parameters.keys() & likely.keys():
            parameters[name]["schema"].clear()
            parameters[name]["schema"]["enum"] = likely[name]
    schema = schemathesis.openapi.from_dict(named)
    schema.app = app
    return [each.ok() for each in schema.get_all_operations()]


def check_operation(operation, number):
    phases = [Phase.explicit, Phase.generate]

    @settings(max_examples=number, phases=phases, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def check(case):
        seen.add(case.call_and_validate(checks=CHECKED).status_code)

    seen = set()
    check()
    return seen


@pytest.mark.process
def test_500_requests(app):
    names = {name: [*LIKELY["name"], "nowhere"] for name in ("name", "compare")}
    each = 250 // len(app.openapi()["paths"]) + 1
    for likely, other in zip(described(app, LIKELY), described(app, names), strict=True):
        assert 200 in check_operation(likely, each) | check_operation(other, each), likely.label
