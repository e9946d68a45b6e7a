"""server/static/: the map in a browser, as people use it; its answers are the library's."""

import json
import re
import shutil

import geopandas as gpd
import numpy as np
import pytest
import shapely
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import deltahist as dh
from deltahist.releases.series import Difference
from tests.server.conftest import BOUNDS
from tests.serving import serving

# How long a condition is waited for, in milliseconds: on a busy machine a page takes its time.
expect.set_options(timeout=30_000)

BOX = "-74.02,40.66,-73.97,40.70"
ZONES = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"name": name},
            "geometry": {"type": "Polygon", "coordinates": [[[x, 40.66], [x + 0.01, 40.66], [x, 40.69], [x, 40.66]]]},
        }
        for name, x in (("<b>north</b>", -74.02), ("south", -74.0), ("elsewhere", 100))
    ]
    + [{"type": "Feature", "properties": {"zone": "nowhere"}, "geometry": None}],
}
# Size and words of every text that is seen, drawn ones as large as they are shown.
LETTERS = """() => [...document.querySelectorAll("body *")].filter(
  (each) => each.checkVisibility({ visibilityProperty: true }) && each.getClientRects().length
    && each.closest(".unseen, .skip") === null
    && [...each.childNodes].some((child) => child.nodeType === 3 && child.data.trim()),
).map((each) => {
  const scale = each.ownerSVGElement ? each.getScreenCTM().a : 1;
  return [parseFloat(getComputedStyle(each).fontSize) * scale, each.textContent.trim()];
})"""
# The shares of the pixels on the left and on the right of the canvas that have a colour.
PAINTED = """() => {
  const canvas = document.querySelector(".leaflet-density-pane canvas");
  const row = 4 * canvas.width;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return [true, false].map((left) =>
    data.filter((value, at) => at % 4 === 3 && value > 0 && (at % row < row / 2) === left).length / (data.length / 8));
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A map with another of the same places, one across 180°, a plane, a line, and a folder of three days."""
    folder = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(2)
    near = dh.Neighbourhood(dh.Domain(BOUNDS, (16, 16), "EPSG:32618"), delta=500)
    days = folder / "days"
    days.mkdir()
    for name in ("city", "later", *(f"days/2010-05-0{day}" for day in (1, 2, 3))):
        dh.publish(rng.poisson(20, (16, 16)), near, "flow", epsilon=1).save(folder / f"{name}.parquet")
    shutil.copy(folder / "city.parquet", folder / "twin.parquet")
    shutil.copy(folder / "city.parquet", folder / "afar.parquet")  # would be shown first
    dh.withdraw(folder / "afar.parquet", "wrong <b>column")
    plane = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), delta=1)
    about = dh.About("<b>Visits</b>", licence="<i>CC0</i>")
    dh.publish(rng.poisson(20, (8, 8)), plane, epsilon=1, about=about).save(folder / "plane.parquet")
    pacific = dh.Neighbourhood(dh.Domain((1e6, -3e6, 8e6, 4e6), (8, 8), "EPSG:3832"), delta=9e5)
    dh.publish(rng.poisson(20, (8, 8)), pacific, epsilon=1).save(folder / "pacific.parquet")
    line = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    dh.publish(rng.poisson(20_000, 8), line, "cumulative", epsilon=1).save(folder / "line.parquet")
    west, south, east, north = BOUNDS
    halves = [shapely.box((west + east) / 2, south, east, north), shapely.box(west, south, (west + east) / 2, north)]
    names = gpd.GeoDataFrame({"name": ["<i>east</i>", "west"]}, geometry=halves, crs="EPSG:32618")
    names.to_crs("OGC:CRS84").to_file(folder / "halves.geojson")
    return folder


@pytest.fixture(scope="module")
def address(folder):
    """The address of a running service."""
    roads = gpd.GeoSeries.from_wkt(["LINESTRING (-74.05 40.65, -73.97 40.71)"], crs="EPSG:4326")
    roads.to_file(folder / "roads.gpkg")
    options = ("--regions", folder / "halves.geojson", "--context", folder / "roads.gpkg")
    with serving(folder / "log", folder, folder / "days", *options) as (address, _):
        yield address


def watched(browser, address, **options):
    """A page, and what goes wrong on it or is asked of anybody else."""
    page, wrong = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options}).new_page(), []
    page.on("console", lambda message: message.type in ("error", "warning") and wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    here = (address, "about:", "blob:", "data:")
    page.on("request", lambda request: request.url.startswith(here) or wrong.append(request.url))
    return page, wrong


@pytest.fixture(scope="module")
def window(browser, address):
    """A page for one visit after the other: its scripts are compiled once."""
    return watched(browser, address)


@pytest.fixture
def visit(browser, window, address):
    """Open the map; afterwards nothing may have gone wrong or been asked of anybody else."""
    opened = []

    def open_page(state="", **options):
        opened.append(watched(browser, address, **options) if opened or options else window)
        page, _ = opened[-1]
        page.goto(f"{address}/#{state}")
        expect(page.locator("#promise")).not_to_be_empty()
        return page

    yield open_page
    said = [each for _, wrong in opened for each in wrong]
    for page, wrong in opened:
        page.goto("about:blank") if page is window[0] else page.context.close()
        wrong.clear()
    assert not said


def drag(page):
    """Draw a box about the middle of the map by two corners."""
    page.get_by_role("button", name="Draw a box").click()
    middle = page.locator("#map").bounding_box()
    x, y = middle["x"] + middle["width"] / 2, middle["y"] + middle["height"] / 2
    page.mouse.click(x - 60, y - 50)
    page.mouse.move(x + 60, y + 40, steps=3)
    page.mouse.click(x + 60, y + 40)


def download(page):
    with page.expect_download() as found:
        page.get_by_role("button", name="as GeoJSON").click()
    return found.value.path().read_text()


def load_prepared(path):
    """Sums are then added in one order, whatever is asked, as the service does."""
    release = dh.load(path)
    release.precompute_sums()
    return release


def test_a_box_that_is_drawn_has_the_answer_of_the_library(visit, folder):
    page = visit("release=city")
    drag(page)
    expect(page.locator("#answer strong")).to_contain_text(re.compile(r"About [\d,]+ points"))
    (feature,) = json.loads(download(page))["features"]
    ring = np.array(feature["geometry"]["coordinates"][0])
    box = [*ring.min(axis=0), *ring.max(axis=0)]
    expected = dh.answer(load_prepared(folder / "city.parquet"), [box], nonnegative=True).iloc[0]
    for name in ("estimate", "std_error", "low", "high"):
        assert feature["properties"][name] == expected[name]
    shown = page.locator("#answer .words").text_content().replace("−", "-").replace(",", "")
    for value, said in zip(expected[["estimate", "low", "high"]], re.findall(r"-?[\d.]+", shown), strict=False):
        assert abs(float(said) - value) <= max(0.51, expected["std_error"] / 4)


def test_keys_alone_draw_type_and_ask(visit):
    page = visit("release=city")
    page.locator("#box").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    for key in ("ArrowRight", "ArrowDown"):
        before = page.evaluate("() => location.hash")
        page.keyboard.press(key)
        page.wait_for_function("before => location.hash !== before", arg=before)
    page.keyboard.press("Space")
    expect(page.locator("#answer strong")).to_contain_text("points")
    for name, value in zip(("west", "south", "east", "north"), BOX.split(","), strict=True):
        page.locator(f"[name={name}]").focus()
        page.keyboard.press("Control+A")
        page.keyboard.type(value)
    page.keyboard.press("Enter")
    page.wait_for_function("box => location.hash.includes(box)", arg="box=-74.02,40.66,-73.97,40.7")
    page.locator("#me").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#for-me")).to_contain_text("of 100 cases")
    page.locator("#apart").focus()
    told = page.locator("#for-me").text_content()
    page.keyboard.press("End")
    expect(page.locator("#for-me")).not_to_have_text(told)
    page.keyboard.press("Escape")
    expect(page.locator("#explanation")).to_be_hidden()


def drop(page, collection):
    transfer = page.evaluate_handle(
        """text => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([text], "zones.geojson"));
          return transfer;
        }""",
        json.dumps(collection),
    )
    page.dispatch_event("#map", "drop", {"dataTransfer": transfer})


def test_a_file_of_areas_is_dropped_and_answered(visit, folder):
    page = visit("release=city")
    drop(page, ZONES)
    rows = page.locator("#answer tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(3)).to_contain_text(re.compile("nowhere.*geometry"))
    page.wait_for_function("() => Number(location.hash.match(/view=.*,(.*)/)[1]) > 10")  # not the world
    expect(rows.first).to_contain_text("<b>north</b>")  # text, never markup
    page.locator("#answer tbody button").nth(1).click()
    expect(page.locator("#answer strong")).to_contain_text("points")
    release = load_prepared(folder / "city.parquet")
    found = json.loads(download(page))["features"]
    expected = dh.answer(release, gpd.GeoDataFrame.from_features(ZONES, crs="OGC:CRS84"), nonnegative=True)
    assert [each["properties"]["estimate"] for each in found[:2]] == expected["estimate"].tolist()[:2]


def test_a_map_across_180_degrees_is_drawn_and_asked_across_them(visit, folder):
    page = visit("release=pacific")
    expect(page.locator("[data-shows=pacific] canvas")).to_be_visible()
    assert min(page.evaluate(PAINTED)) > 0.2
    expect(page.locator(".tick").get_by_text(re.compile(r"^160° W$"))).to_be_visible()
    expected = dh.answer(load_prepared(folder / "pacific.parquet"), [[175, -10, -175, 10]], nonnegative=True)[
        "estimate"
    ].item()
    for area in ("box=175,-10,185,10", "box=175,-10,-175,10", "polygon=-185,-10,-175,-10,-175,10,-185,10"):
        page.evaluate("area => { location.hash = `release=pacific&${area}`; }", area)
        page.wait_for_function("area => location.hash.includes(area)", arg="=175,-10,")
        expect(page.locator("#answer strong")).to_contain_text("points")
        (feature,) = json.loads(download(page))["features"]
        assert feature["properties"]["estimate"] == pytest.approx(expected, rel=1e-6)
        expect(page.locator("path.asked")).to_be_in_viewport()
    page.evaluate("() => { location.hash = 'release=pacific&box=190,-10,200,10'; }")
    expect(page.locator("#answer strong")).to_contain_text("points")
    page.wait_for_function("() => location.hash.includes('box=-170,-10,-160,10')")
    expect(page.locator("path.asked")).to_be_in_viewport()


def test_land_and_places_surround_a_map_in_degrees_only(visit):
    page = visit("release=pacific")
    expect(page.locator("path.land").first).to_have_attribute("d", re.compile("M.*L.*L"))
    expect(page.locator(".place span", has_text="Honolulu").first).to_be_visible()
    page = visit("release=city")
    expect(page.locator(".place span", has_text="Brooklyn").first).to_be_visible()
    expect(page.locator(".leaflet-context-pane canvas")).to_be_visible()
    expect(page.locator("path.land")).to_have_count(0)  # too coarse for a city
    page.locator("#release").select_option("plane")
    expect(page.locator("[data-shows=plane] canvas")).to_be_visible()
    expect(page.locator(".place, path.land, .leaflet-context-pane canvas")).to_have_count(0)


def test_a_search_by_keys_moves_the_map(visit):
    page = visit("release=city")
    for text, view in (("sunset park", "view=-74.01"), ("40.68 N 73.99 W", "view=-73.9[89]")):
        page.locator("#sought").fill(text)
        expect(page.locator("#found li").first).to_be_visible()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_function("view => location.hash.match(view)", arg=view)
        expect(page.locator("path.sought")).to_be_in_viewport()
    page.locator("#sought").fill("paris, france")
    page.keyboard.press("Enter")
    expect(page.locator("#where-found")).to_contain_text("not on the map")


def test_two_releases_are_compared_with_the_error_of_both(visit, folder):
    page = visit(f"release=city&box={BOX}")
    names = ["nothing", "later", "twin", *(f"2010-05-0{day}" for day in (1, 2, 3))]  # those of the same cells
    assert sorted(page.locator("#compare option").all_inner_texts()) == sorted(names)
    page.locator("#compare").select_option("later")
    expect(page.locator("#answer tbody tr")).to_have_count(3)
    own, other, difference = (each["properties"] for each in json.loads(download(page))["features"])
    box = [[float(each) for each in BOX.split(",")]]
    for found, name in ((own, "city"), (other, "later")):
        expected = dh.answer(load_prepared(folder / f"{name}.parquet"), box, nonnegative=True)
        assert found["estimate"] == expected["estimate"].item()
    releases = [load_prepared(folder / f"{name}.parquet") for name in ("city", "later")]
    assert difference["estimate"] == pytest.approx(dh.answer(Difference(*releases), box)["estimate"].item())
    assert difference["std_error"] > max(own["std_error"], other["std_error"])
    expect(page.locator("#legend")).to_contain_text("later minus city")
    expect(page.locator("[data-shows='city later']")).to_have_count(1)


def test_a_slider_goes_through_the_steps_of_a_stream(visit, folder):
    page = visit(f"release=2010-05-01&box={BOX}")
    expect(page.locator("#promise")).to_contain_text("All 3 releases together cost ε = 3")
    page.locator("#step").focus()
    for key, day in (("ArrowRight", 2), ("ArrowLeft", 1), ("ArrowRight", 2)):
        before = page.locator("#legend").inner_html()
        page.keyboard.press(key)
        expect(page.locator("#step-name")).to_have_text(f"2010-05-0{day}")
        expect(page.locator(f"[data-shows='2010-05-0{day}'] canvas")).to_be_visible()
    assert page.locator("#legend").inner_html() == before  # a colour means the same at steps that were seen
    page.wait_for_function("() => location.hash.includes('release=2010-05-02')")
    (feature,) = json.loads(download(page))["features"]
    box = [[float(each) for each in BOX.split(",")]]
    expected = dh.answer(load_prepared(folder / "days/2010-05-02.parquet"), box, nonnegative=True)
    assert feature["properties"]["estimate"] == expected["estimate"].item()
    page.locator("#me").click()
    expect(page.locator("#for-me")).to_contain_text("in each of 3 steps")
    expect(page.locator("#for-me")).to_contain_text("at most 95.3 of 100 cases")  # ε = 3
    page.keyboard.press("Escape")
    page.locator("#release").select_option("city")
    expect(page.locator("#time")).to_be_hidden()


def test_a_telephone_has_the_panel_below_the_map_and_draws_by_touch(visit):
    page = visit(f"release=city&box={BOX}", viewport={"width": 390, "height": 844}, has_touch=True)
    expect(page.locator("#answer strong")).to_contain_text("points")
    stage, panel = (page.locator(each).bounding_box() for each in ("#stage", "#panel"))
    assert panel["y"] >= stage["y"] + stage["height"] - 1
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("() => document.documentElement.scrollWidth") == 360
    sizes = page.evaluate(LETTERS)
    assert len(sizes) > 20
    assert min(size for size, _ in sizes) >= 11, sorted(sizes)[:5]
    page.locator("#polygon").tap()
    for right, down in ((-60, -60), (60, -60), (0, 60)):
        page.touchscreen.tap(stage["x"] + 195 + right, stage["y"] + 240 + down)
    page.locator("#finish").tap()
    page.wait_for_function("() => location.hash.includes('polygon=')")
    expect(page.locator("#answer strong")).to_contain_text("points")


def test_texts_of_the_publisher_are_no_markup(visit):
    page = visit("release=plane")
    expect(page.locator("#about-title")).to_have_text("<b>Visits</b>")
    expect(page.locator("#facts p").first).to_have_text("licence: <i>CC0</i>")
    expect(page.locator("#release option:checked")).to_have_text("<b>Visits</b> (plane)")


def test_axe_finds_nothing_serious_by_day_and_by_night(browser, address):
    # Its script is injected, which the page's own policy forbids.
    context = browser.new_context(bypass_csp=True, color_scheme="dark")
    page, found = context.new_page(), []
    page.goto(f"{address}/#release=2010-05-01&box={BOX}&compare=2010-05-02&districts=true")
    expect(page.locator("#answer tbody tr")).to_have_count(3)
    expect(page.locator("#district-table tbody tr")).to_have_count(2)
    for theme, width in (("dark", 1280), ("light", 390)):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        expect(page.locator("[aria-busy]")).to_have_count(0)  # colours have followed the theme
        found += Axe().run(page).response["violations"]
        page.locator("#me").click()
        expect(page.locator("#for-me")).to_contain_text("of 100 cases")
        found += Axe().run(page).response["violations"]
        page.locator("#close").click()
    context.close()
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious]


def test_districts_and_a_sum_are_coloured_listed_and_linked(visit, folder):
    page = visit(f"release=2010-05-03&box={BOX}")
    page.get_by_role("button", name="Districts").click()
    page.locator("#sum").check()
    page.locator("#from").select_option("2010-05-02")
    page.wait_for_function("() => location.hash.includes('between=2010-05-02,2010-05-03&districts=true')")
    expect(page.locator("[data-shows='2010-05-02 to 2010-05-03']")).to_have_count(1)
    period = dh.Series.load(folder / "days").between("2010-05-02", "2010-05-03")
    expected = dh.answer(period, gpd.read_file(folder / "halves.geojson"), nonnegative=True)["estimate"]
    rows = page.locator("#district-table tbody tr")
    for column, order in (("estimate", np.argsort(-expected)), ("name", [0, 1])):
        page.locator(f"#district-table [data-by={column}]").click()
        assert rows.locator("th").all_inner_texts() == [["<i>east</i>", "west"][at] for at in order]
    for row, estimate in zip(rows.all(), expected, strict=True):
        assert float(row.locator("td").first.inner_text().replace(",", "")) == pytest.approx(estimate, abs=5)
    expect(page.locator(".name")).to_have_text(["<i>east</i>", "west"])
    expect(page.locator("#answer:not([aria-busy]) strong")).to_contain_text("points")
    (feature,) = json.loads(download(page))["features"]
    expected = dh.answer(period, [[float(each) for each in BOX.split(",")]], nonnegative=True)
    assert feature["properties"]["std_error"] == pytest.approx(expected["std_error"].item())


def test_play_waits_for_each_map_and_stops_at_the_end(visit):
    page = visit("release=2010-05-01")
    page.route(re.compile("2010-05-0[23]/cells"), lambda route: (page.wait_for_timeout(1500), route.continue_()))
    expect(page.locator("[data-shows='2010-05-01']")).to_have_count(1)
    page.get_by_role("button", name="Play").click()
    expect(page.locator("#step-name")).to_have_text("2010-05-02")
    assert page.locator("#stage").get_attribute("aria-busy") == "true"  # the map is still that of the first step
    pane = page.locator(".leaflet-density-pane")
    assert float(pane.evaluate("each => getComputedStyle(each).opacity")) < 0.5
    expect(page.locator("#step-name")).to_have_text("2010-05-03")
    assert pane.get_attribute("data-shows") == "2010-05-02"
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("button", name="Play").click()
    expect(page.locator("#stage:not([aria-busy]) [data-shows='2010-05-01']")).to_have_count(1)
    page.wait_for_timeout(1200)
    assert page.locator("#step-name").inner_text() == "2010-05-01"
    page.emulate_media(reduced_motion="no-preference")
    page.unroute_all(behavior="wait")


def test_rounding_moves_no_end_of_an_interval_to_0(visit):
    figure = "async ([value, step]) => (await import('./static/words.js')).figure(value, step)"
    page = visit("release=city")
    shown = [page.evaluate(figure, each) for each in ((0.4, 1), (-0.3, 1), (0.04, 10), (0, 1), (-1e-12, 1), (14.6, 10))]
    assert shown == ["0.4", "−0.3", "0.04", "0", "0", "10"]
