"""tools/site.py: the documentation's site has no dead link, and asks nothing of anybody else."""

import functools
import http.server
import threading
from html.parser import HTMLParser
from unittest import mock
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.test_map import watched
from tools.site import ROOT, build_site


class Page(HTMLParser):
    """The anchors of a page, and what it links to or loads."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loads = {""}, [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors.add(given.get("id"))
        (self.links if tag == "a" else self.loads).extend(given[name] for name in ("href", "src") if given.get(name))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    with mock.patch("tools.explorable.compute_figures", return_value={}):  # takes half a minute
        build_site(folder)
    return folder / "site"


def test_every_link_leads_to_a_page_and_an_anchor(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}  # its links begin with /
    assert len(pages) > 50
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert link in page.links or parts.scheme == "data", (path, link)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), (path, link)
            if target in pages and "=" not in parts.fragment:  # the state of a page
                assert unquote(parts.fragment) in pages[target].anchors, (path, link)


def test_every_page_of_docs_is_in_the_menu():
    menu = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    assert [page for page in (ROOT / "docs").rglob("*.md") if f'"{page.relative_to(ROOT / "docs")}"' not in menu] == []


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_can_be_searched_and_load_nothing_from_elsewhere(site, browser, width):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        page, wrong = watched(browser, address, viewport={"width": width, "height": 800}, color_scheme="dark")
        for name in ("api/publishing", "commands/publish", "http", "internals/theory", "gallery/gallery", "index"):
            page.goto(f"{address}/{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
        page.keyboard.press("/")
        page.keyboard.type("epsilon")
        expect(page.get_by_role("option").first).to_contain_text("ε (epsilon)")
        page.context.close()
        server.shutdown()
    assert wrong == []
