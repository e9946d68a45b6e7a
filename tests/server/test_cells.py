"""server/: blocks of cells, and one release minus another, with the library's own answers."""

import json

import numpy as np
import pytest
import shapely
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.decode import stands_out
from deltahist.releases.series import Difference
from deltahist.server.map_routes import encode_blocks
from deltahist.server.models import CellsAsked
from deltahist.space.crs import Operation
from tests.server.conftest import DEGREES, DOMAIN, check_problem

OFF = Operation.off(DOMAIN, "EPSG:4326")


def places():
    """Boxes in degrees near the map, far around it, or across the antimeridian."""
    lon, lat = st.floats(-74.1, -73.95), st.floats(40.62, 40.7)
    near = st.tuples(lon, lat, lon, lat).filter(lambda b: b[0] < b[2] and b[1] < b[3])
    beyond = [(-75, -1e300, -73, 1e300), (0, -1e8, 1, 1e8)]
    far = [(-180, -90, 180, 90), (-300, -85, 420, 85), (170, 0, -70, 50), (0, 0, 1, 1), *beyond]
    return near | st.sampled_from(far)


def text(box):
    return ",".join(map(repr, map(float, box)))


def corners_of(found, domain):
    """The boxes (m, 4) of blocks on the map."""
    x, y = (domain.edges(axis)[np.array(ends)] for axis, ends in enumerate(found["ends"]))
    low, high = np.meshgrid(x[:-1], y[:-1], indexing="ij"), np.meshgrid(x[1:], y[1:], indexing="ij")
    return np.column_stack([each.ravel() for each in (*low, *high)])


@settings(max_examples=25)
@given(box=st.none() | places(), width=st.integers(1, 200), compare=st.booleans())
def test_blocks_have_the_librarys_answers(atlas, maps, box, width, compare):
    """They hold all that a box has of the map. Larger blocks stand out where none of their parts does."""
    asked = {"width": width} | ({} if box is None else {"bbox": text(box)})
    asked |= {"compare": "today"} if compare else {}
    found = atlas.get(f"/releases/{'yesterday' if compare else 'today'}/cells", params=asked).json()
    number = len(found["density"])
    assert number == np.prod(found["shape"]) <= 20_000
    corners = corners_of(found, DOMAIN)
    if box is not None:
        west, south, east, north = box
        window = shapely.box(west, south, east + 360 * (east < west), north)
        middles = np.array(np.meshgrid(*(DOMAIN.edges(a)[1:] - 25 for a in (0, 1)))).reshape(2, -1)
        there = shapely.points(np.column_stack(OFF(*middles)))
        inside = shapely.points(middles.T)[shapely.contains(window, there)]
        held = shapely.box(*shapely.total_bounds(shapely.box(*corners.T))) if number else shapely.Polygon()
        assert (shapely.distance(inside, held) < 1e-6).all()
    if not number:
        return
    one, other = (maps.find(name).release for name in ("yesterday", "today"))
    release = Difference(one, other) if compare else other
    work = dh.workloads.boxes(corners)
    expected = {name: each.to_numpy() for name, each in dh.answer(release, work).items()}
    area = np.prod((corners[:, 2:] - corners[:, :2]) / 1000, axis=1)
    np.testing.assert_allclose(found["density"], expected["estimate"] / area, rtol=2e-3, atol=1e-9)
    kurtosis = release.decoder.moments(work).kurtosis
    signal = stands_out(expected["estimate"], expected["std_error"], kurtosis, level=0.01, either_side=compare)
    assert found["stands_out"] == signal.tolist()
    fine = signal.reshape(found["shape"])
    for each in found["larger"]:
        (west, south), (east, north) = each["first"], each["last"]
        assert not fine[west:east, south:north].any()
        held = [DOMAIN.edges(n % 2)[found["ends"][n % 2][at]] for n, at in enumerate((west, south, east, north))]
        area = (held[2] - held[0]) * (held[3] - held[1]) / 1e6
        assert each["density"] == pytest.approx(dh.answer(release, [held])["estimate"].item() / area, rel=2e-3)


def test_blocks_that_a_strategy_does_not_resolve_do_not_stand_out():
    """Shifted grids of eight by eight cells see a hot cell in one of these."""
    near = dh.Neighbourhood(dh.Domain((0, 0, 32, 32), (32, 32)), 2, "boundary")
    truth = np.zeros((32, 32), dtype=np.int64)
    truth[9, 9] = 1_000
    release = dh.publish(truth, near, "shifted:8,4", epsilon=1, rng=np.random.default_rng(1))
    found = json.loads(encode_blocks(release, None, False, CellsAsked()))
    assert not any(found["stands_out"])
    (block,) = found["larger"]
    assert (block["first"], block["last"]) == ([8, 8], [16, 16])


@pytest.mark.parametrize(("box", "crs"), [((580700, 4500900, 583120, 4502310), "EPSG:32618"), (DEGREES, "CRS84")])
def test_a_difference_has_the_errors_of_both(atlas, maps, box, crs):
    asked = {"bbox": text(box), "compare": "today", "crs": crs, "level": 0.9}
    found = atlas.get("/releases/yesterday/answer", params=asked).json()
    assert (found["difference"], found["compare"]) == ("today minus yesterday", "today")
    one, other = (maps.find(name).release for name in ("yesterday", "today"))
    for name, value in dh.answer(Difference(one, other), [box], level=0.9).iloc[0].items():
        assert found[name] == value
    before, after = (dh.answer(each, [box], level=0.9).iloc[0] for each in (one, other))
    assert found["estimate"] == pytest.approx(after["estimate"] - before["estimate"])
    assert found["noise_error"] == pytest.approx(np.hypot(before["noise_error"], after["noise_error"]))
    assert found["placement_error"] == pytest.approx(before["placement_error"] + after["placement_error"])


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ("cells/answer?compare=copy", 400, "share data and noise"),
        ("cells/answer?compare=finer", 400, "share data and noise"),
        ("today/answer?compare=plane", 400, "same cells"),
        ("today/answer?compare=nowhere", 404, "compare is 'nowhere'"),
        ("today/answer?compare=yesterday&nonnegative=true", 400, "it must be False"),
    ],
)
def test_what_cannot_be_compared_is_refused(atlas, asked, status, said):
    check_problem(atlas.get(f"/releases/{asked}&bbox={text(DEGREES)}"), status, said)
