"""server/tiles.py, pictures.py: pixels have the colours of the cells that they are on, and legends say which."""

import io
import math
import shutil

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings, strategies as st
from PIL import Image

import deltahist as dh
from deltahist.plots.cells import merge_blocks
from deltahist.plots.colours import Ends
from deltahist.plots.ground import cell_areas
from deltahist.releases.sums import ReleaseDifference
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue, Served
from deltahist.server.pictures import HATCHED, Gallery
from deltahist.space.crs import Operation
from tests.server.conftest import DOMAIN, SHAPE, check_problem

TODAY = "/releases/today/tiles/WebMercatorQuad"


def pixels_of(answer):
    """Return the colours (256, 256, 4) of a tile, rows from the north."""
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    return np.asarray(Image.open(io.BytesIO(answer.content)).convert("RGBA"))


def place_of_pixel(domain, z, column, row):
    """Return where the centre of a pixel is on a map; column and row are counted from the corner of all tiles."""
    east, down = (column + 0.5) / (256 << z), (row + 0.5) / (256 << z)
    if domain.crs is None:
        longest = max(h - lo for lo, h in zip(domain.low, domain.high, strict=True))
        return domain.low[0] + longest * east, domain.high[1] - longest * down
    lon, lat = 360 * east - 180, math.degrees(2 * math.atan(math.exp(math.pi * (1 - 2 * down))) - math.pi / 2)
    x, y = Operation.off(domain, "EPSG:4326").back(np.array([lon]), np.array([lat]))
    return float(x[0]), float(y[0])


def pixels_per_cell(domain, z):
    """Return how many pixels there are along a cell in the middle of a map, roughly."""
    if domain.crs is None:
        return (256 << z) / domain.shape[0]
    return (256 << z) * domain.cell[0] / (40_075_017 * math.cos(math.radians(40.66)))


def least_width(domain, z, pixels):
    width = 1
    while width < max(domain.shape) and width * pixels_per_cell(domain, z) < pixels:
        width *= 2
    return width


def block_at(domain, width, x, y):
    """Return the cells of the block that holds a place, as slices, and its corners."""
    cell = domain.locate([[x, y]])[0]
    first = cell // width * width
    last = np.minimum(first + width, domain.shape)
    edges = [domain.edges(axis) for axis in (0, 1)]
    corners = [edges[axis][ends[axis]] for ends in (first, last) for axis in (0, 1)]
    return tuple(slice(a, b) for a, b in zip(first, last, strict=True)), corners


def picture_of(source):
    return Gallery().find(source, [Served("any", None, b"", source if hasattr(source, "digest") else source.after)])


@pytest.fixture(scope="module")
def sources(maps):
    """What is drawn, by the address of its tiles, with the cells that are shown."""
    today, yesterday, plane = (maps.find(name).release for name in ("today", "yesterday", "plane"))
    less = ReleaseDifference(yesterday, today)
    return {
        "/releases/today/tiles/WebMercatorQuad": (today, today.cells(nonnegative=True)),
        "/releases/yesterday/tiles/WebMercatorQuad/?compare=today": (less, merge_blocks(less.cells(), less.decoder)),
        "/releases/plane/tiles/plane": (plane, plane.cells(nonnegative=True)),
    }


@settings(max_examples=30)
@given(which=st.integers(0, 2), z=st.integers(7, 16), across=st.floats(-0.1, 1.1), along=st.floats(-0.1, 1.1))
def test_pixels_have_the_colours_of_their_cells(atlas, sources, which, z, across, along):
    """From the centre to the block: the mean of its cells is the colour, the answer to the wider block the hatch."""
    path, (source, shown) = list(sources.items())[which]
    domain, z = source.domain, max(z - 8, 0) if which == 2 else z
    (west, south), (east, north) = domain.low, domain.high
    x, y = west + across * (east - west), south + along * (north - south)
    if domain.crs is None:
        column, row = (x - west) / 16 * (256 << z), (north - y) / 16 * (256 << z)
    else:
        lon, lat = (float(each[0]) for each in Operation.off(domain, "EPSG:4326")(np.array([x]), np.array([y])))
        column = (lon + 180) / 360 * (256 << z)
        row = (1 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2 * (256 << z)
    if min(column, row) < 0 or max(column, row) >= 256 << z:
        return
    tile = int(column // 256), int(row // 256)
    address, _, query = path.partition("/?")
    drawn = pixels_of(atlas.get(f"{address}/{z}/{tile[0]}/{tile[1]}.png?{query}"))
    colours = picture_of(source).colours
    random = np.random.default_rng([which, z, *tile])
    for i, j in [(int(column) % 256, int(row) % 256), *random.integers(0, 256, (30, 2)).tolist()]:
        x, y = place_of_pixel(domain, z, 256 * tile[0] + i, 256 * tile[1] + j)
        if not (west <= x < east and south <= y < north):
            assert drawn[j, i, 3] == 0
            continue
        cells, _ = block_at(domain, least_width(domain, z, 1), x, y)
        code = colours.shades(np.array([shown[cells].sum() / cell_areas(domain)[cells].sum()]))[0]
        _, corners = block_at(domain, least_width(domain, z, 8), x, y)
        answer = dh.answer(source, dh.workloads.boxes([corners])).iloc[0]
        sure = abs(answer["estimate"]) >= 3 * answer["std_error"]
        sure &= answer["low"] > 0 or (which == 1 and answer["high"] < 0)
        hatched = not sure and (i + j) % 8 < 2
        assert drawn[j, i].tolist() == [*colours.palette[code + HATCHED * hatched].tolist(), 255]


def test_a_tile_for_dense_screens_is_that_of_its_ground_in_four_parts(atlas):
    """Colours alone: the hatch is wider there, and blocks may be finer."""
    fine = np.asarray(Image.open(io.BytesIO(atlas.get(f"{TODAY}/14/4826/6162@2x.png").content)).convert("RGBA"))
    parts = [[pixels_of(atlas.get(f"{TODAY}/15/{9652 + i}/{12324 + j}.png")) for i in (0, 1)] for j in (0, 1)]
    joined = np.concatenate([np.concatenate(row, axis=1) for row in parts])
    assert fine.shape == joined.shape == (512, 512, 4)
    assert (fine == joined).all(axis=2).mean() > 0.5
    np.testing.assert_array_equal(fine[..., 3], joined[..., 3])


def test_tiles_beside_the_map_are_empty(atlas):
    assert not pixels_of(atlas.get(f"{TODAY}/3/7/7.png"))[..., 3].any()
    assert not pixels_of(atlas.get("/releases/plane/tiles/plane/1/0/1.png"))[..., 3].any()


def test_legends_name_the_colours(atlas, sources):
    found = atlas.get("/releases/today/legend").json()
    values, colours = zip(*found["stops"], strict=True)
    assert found["unit"] == "points per km²"
    assert (found["minimum"], found["maximum"]) == (values[0], values[-1])
    assert values[0] == 0 < values[-1] < 1e5
    assert list(values) == sorted(values)
    assert len(set(colours)) == len(colours)
    drawn = pixels_of(atlas.get(f"{TODAY}/12/1206/1540.png")).reshape(-1, 4)
    assert drawn[:, 3].any()
    assert {f"#{bytes(c[:3]).hex()}" for c in np.unique(drawn[drawn[:, 3] > 0], axis=0)} & set(colours)
    change = atlas.get("/releases/yesterday/legend?compare=today").json()
    assert change["minimum"] == -change["maximum"] < 0
    assert [-value for value, _ in change["stops"][::-1]] == [value for value, _ in change["stops"]]
    assert atlas.get("/releases/plane/legend").json()["unit"] == "points per square unit"
    painted = Image.open(io.BytesIO(atlas.get("/releases/today/legend?f=png").content))
    assert {tuple(bytes.fromhex(colour[1:])) for colour in colours} <= {each for _, each in painted.getcolors(1 << 16)}
    svg = atlas.get("/releases/today/legend", headers={"accept": "image/svg+xml"})
    assert all(colour in svg.text for colour in colours)
    assert svg.headers["etag"] != atlas.get("/releases/today/legend").headers["etag"]


def test_a_release_that_was_replaced_has_a_picture_of_its_own(maps):
    gallery, (today, yesterday) = Gallery(), (maps.find(name) for name in ("today", "yesterday"))
    first = gallery.find(today.release, [today])
    assert gallery.find(today.release, [today]) is first
    replaced = Served("today", today.path, yesterday.content, yesterday.release)
    second = gallery.find(replaced.release, [replaced])
    assert second.source is yesterday.release
    assert not np.array_equal(first.cells, second.cells)


def test_a_scale_of_several_maps_has_round_values(maps, monkeypatch):
    gallery, (today, yesterday) = Gallery(), (maps.find(name) for name in ("today", "yesterday"))
    ends = {today.release.digest: Ends(1.0, 274.815339, 274.815339), yesterday.release.digest: Ends(1.0, 150.0, 390.5)}
    monkeypatch.setattr(gallery, "_ends", ends)
    assert [value for value, _ in gallery.find_colours([today, yesterday]).stops][-1] == 270
    assert gallery.find_colours([today]).ends.top == 274.815339  # where nothing is denser, and the end is not told


def test_copies_of_tiles_are_those_of_their_releases(atlas):
    first = atlas.get(f"{TODAY}/12/1206/1540.png")
    again = atlas.get(f"{TODAY}/12/1206/1540.png", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    others = (f"{TODAY}/12/1206/1540.png?compare=yesterday", f"{TODAY.replace('today', 'yesterday')}/12/1206/1540.png")
    tags = {first.headers["etag"], *(atlas.get(other).headers["etag"] for other in others)}
    assert len(tags) == 3


def test_steps_of_a_series_and_both_sides_of_a_swipe_have_one_scale(tmp_path):
    """Its tag does not begin with the release's digest, as another step may change it; an explicit scale stays."""
    near, folder = dh.Neighbourhood(DOMAIN, 100), tmp_path / "days"
    folder.mkdir()
    for day, rate in enumerate((1, 1, 300), 1):
        counts = np.full(SHAPE, rate)
        counts[:9, :9] *= 5
        dh.publish(counts, near, "flow", epsilon=1).save(folder / f"2010-05-0{day}.parquet")
    shutil.move(folder / "2010-05-03.parquet", tmp_path / "other.parquet")
    catalogue = Catalogue([tmp_path, folder])
    with TestClient(create_app(catalogue)) as client:
        first, tile = "/releases/2010-05-01", "tiles/WebMercatorQuad/12/1206/1540.png"
        before, drawn = client.get(f"{first}/legend"), client.get(f"{first}/{tile}")
        assert before.json()["scale"] == client.get("/releases/2010-05-02/legend").json()["scale"]
        digest = client.get(first).json()["digest"]
        assert client.get(f"{first}/{tile}?digest={digest}").headers["cache-control"] == "no-cache"
        swipe = [
            client.get(f"/releases/{one}/legend?alike={two}").json()
            for one, two in (("2010-05-01", "other"), ("other", "2010-05-02"))
        ]
        assert swipe[0]["scale"] == swipe[1]["scale"] != before.json()["scale"]
        wide = client.get(f"{first}/{tile}?scale={swipe[0]['scale']}&digest={digest}")
        assert "immutable" in wide.headers["cache-control"]
        shutil.move(tmp_path / "other.parquet", folder / "2010-05-03.parquet")
        while catalogue.find("2010-05-03") is None:  # the service looks, too
            catalogue.refresh()
        after, again = client.get(f"{first}/legend"), client.get(f"{first}/{tile}")
        assert after.json()["scale"] == swipe[0]["scale"]
        assert after.headers["etag"] != before.headers["etag"]
        assert again.headers["etag"] != drawn.headers["etag"]
        assert again.content == wide.content != drawn.content


REFUSED = {
    "/releases/nowhere/legend": (404, "release is 'nowhere'"),
    "/releases/nowhere/tiles/WebMercatorQuad/0/0/0.png": (404, "release is 'nowhere'"),
    "/releases/today/tiles/WorldCRS84Quad/0/0/0.png": (404, "the release has tiles of WebMercatorQuad alone"),
    "/releases/plane/tiles/WebMercatorQuad/0/0/0.png": (404, "the release has tiles of plane alone"),
    "/releases/sorted/tiles/plane/0/0/0.png": (400, "the release is of a line"),
    "/releases/sorted/legend": (400, "the release is of a line"),
    f"{TODAY}/1/2/0.png": (404, "at zoom 1 both are less than 2"),
    f"{TODAY}/25/0/0.png": (400, "z is '25'"),
    f"{TODAY}/1/-1/0.png": (400, "x is '-1'"),
    f"{TODAY}/1/0/a.png": (400, "y is 'a'"),
    f"{TODAY}/0/0/0.png?scale=0,5": (400, "it must be as a legend has it"),
    f"{TODAY}/0/0/0.png?scale=pale": (400, "scale is 'pale'"),
    "/releases/today/legend?alike=plane": (400, "one scale must have one unit"),
    "/releases/today/legend?alike=yesterday&compare=yesterday": (400, "leave one of them out"),
    f"{TODAY}/0/0/0.png?compare=plane": (400, "only releases of the same cells"),
}


@pytest.mark.parametrize("path", REFUSED)
def test_malformed_requests_get_problem_documents(atlas, path):
    check_problem(atlas.get(path), *REFUSED[path])
