"""server/landing.py: links for programs, and a page for browsers."""

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
