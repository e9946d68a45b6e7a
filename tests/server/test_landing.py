"""server/landing.py: links for programs, a page for browsers, and their addresses wherever the service is."""

import json
import re

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Mount

from deltahist.server.app import create_app
from deltahist.server.settings import Settings
from tests.server.conftest import DEGREES, check_problem
from tests.server.test_app import CITY


def test_programs_get_links_and_browsers_a_page(client):
    found = client.get("/")
    for address in (each["href"] for each in found.json()["links"]):
        assert client.get(address).status_code == 200
    for page in (client.get("/", headers={"accept": "text/html,*/*;q=0.8"}), client.get("/?f=html")):
        assert page.headers["content-type"].startswith("text/html")
    assert client.get("/?f=json", headers={"accept": "text/html"}).json() == found.json()
    check_problem(client.get("/?f=gml"), 400, "f is 'gml': it must be one of json, html")


def test_the_form_may_stand_in_the_address(client):
    found = client.post(f"{CITY}/answers?f=csv", json={"boxes": [DEGREES]})
    assert found.headers["content-type"].startswith("text/csv")
    assert client.get(f"{CITY}?f=text").text.startswith("city")


@pytest.mark.parametrize(
    ("public_url", "outside", "inside"),
    [(None, "http://testserver/maps", "/maps"), ("https://a.example:8443/maps/", "https://a.example:8443/maps", "")],
)
def test_links_lead_back_where_the_service_is_mounted_and_behind_a_proxy(catalogue, public_url, outside, inside):
    """In another application the path stays; a proxy takes the prefix away, and alone knows host and scheme."""
    app = create_app(catalogue, Settings(public_url=public_url))
    outer = Starlette(routes=[Mount(inside, app)], lifespan=lambda _: app.router.lifespan_context(app))
    with TestClient(outer if inside else app) as client:

        def follow(address):
            assert address.startswith(outside), address
            path = inside + address.removeprefix(outside)
            if path in seen or "{" in path:
                return
            answer = client.get(path)
            assert answer.status_code == 200, path
            seen.add(path)
            if "json" in answer.headers["content-type"]:
                for found in re.findall(r'"href":"(.*?)"', json.dumps(answer.json(), separators=(",", ":"))):
                    follow(found)

        seen = set()
        follow(f"{outside}/")
        follow(f"{outside}/collections/city/items/0")
        follow(f"{outside}/collections/city/items?limit=100&bbox={','.join(map(str, DEGREES))}")
        assert {f"{inside}/collections/city/map/tiles/WebMercatorQuad", f"{inside}/series"} < seen
        assert client.get(f"{inside}/api").json()["servers"] == [{"url": outside}]
        server = client.get(f"{inside}/openapi.json").json()["servers"][0]["url"]
        assert server in (outside, inside)
        for page in (f"{inside}/?f=html", f"{inside}/docs"):
            for found in re.findall(r'(?:src|href)="(?!#|data:)(.*?)"', client.get(page).text):
                assert client.get(f"{inside}/{found}").status_code == 200
        assert client.get(f"{inside}/healthz").json()["status"] == "ok"


def test_copies_of_documents_with_links_are_not_kept_when_the_address_of_the_service_changes(catalogue):
    paths = ["", "/items", "/items/0", "/map/tiles/WebMercatorQuad"]
    tags = []
    for public_url in ("https://a.example", "https://b.example"):
        with TestClient(create_app(catalogue, Settings(public_url=public_url))) as client:
            tags.append([client.get(f"/collections/city{path}").headers["etag"] for path in paths])
    assert not set(tags[0]) & set(tags[1])
