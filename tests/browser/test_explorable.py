"""docs/explorable: the sliders change the page, and its figures are the library's."""

import math

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import deltahist as dh
from deltahist.sample import BOUNDS, sample_districts
from tools.explorable import write_page

GRID = {"delta": [500, 1000], "epsilon": [0.5, 1], "limit": [1, 4, None], "cell": [500, 1000]}
SEEN = """() => [$("cells").toDataURL(), $("error-value").textContent, $("curve").innerHTML]"""


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """The page, opened as a file. It may ask for nothing but its own files."""
    folder = tmp_path_factory.mktemp("explorable")
    write_page(folder, GRID)
    page, wrong = browser.new_context(viewport={"width": 390, "height": 800}).new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith((folder.as_uri(), "data:")) or wrong.append(request.url))
    page.goto(f"{folder.as_uri()}/index.html")
    yield page
    assert not wrong


def test_each_slider_changes_the_map_its_error_and_the_curve(page):
    before = page.evaluate(SEEN)
    for name, key in (("delta", "End"), ("epsilon", "Home"), ("limit", "Home"), ("cell", "End")):
        page.locator(f"#{name}").press(key)
        assert all(now != then for now, then in zip(page.evaluate(SEEN), before, strict=True)), name
        assert f"{name}=" in page.url
        page.get_by_role("button", name="Reset").click()
        assert page.evaluate(SEEN) == before
    page.get_by_label("Show the truth").check()
    assert page.evaluate(SEEN)[0] != before[0]


@pytest.mark.parametrize(("delta", "epsilon", "limit", "cell"), [(1000, 0.5, None, 500), (500, 1, 4, 1000)])
def test_figures_are_those_of_the_library(page, delta, epsilon, limit, cell):
    domain = dh.Domain.from_degrees(BOUNDS, f"{cell}m")
    near = dh.Neighbourhood(domain, f"{delta}m", limits=[("any", limit)] if limit else [])
    work = dh.workloads.regions(sample_districts().to_crs(domain.crs))
    nothing = np.zeros(domain.shape, dtype=int)
    mechanism = dh.publish(nothing, near, epsilon=epsilon, workload=work, contributions=5).mechanism
    shared = f"delta={delta}&epsilon={epsilon}&limit={limit or 'none'}&cell={cell}"
    page.goto(f"{page.url.partition('#')[0]}#{shared}")
    page.reload()
    found = page.evaluate("() => ({ ...find(), distances })")
    assert found["noise"] == pytest.approx(mechanism.rmse(work), rel=0.01)
    for distance, guess in zip(found["distances"], found["guesses"], strict=True):
        right = 1 / (1 + math.exp(-mechanism.cost_within(distance)[0]))
        assert right <= guess / 1000 < right + 0.0011


def test_the_page_is_accessible_and_fits_a_phone(page):
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert Axe().run(page).response["violations"] == []
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
