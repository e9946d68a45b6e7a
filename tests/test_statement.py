"""The privacy statement: its facts, its wording for each kind of release, and its pages."""

import html.parser
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import shapely

import deltahist as dh
from deltahist.mechanisms.base import Step
from deltahist.preprocessing import Clock
from deltahist.statement import list_facts, list_rows, write_statement
from deltahist.statement.facts import bound_guess

DOMAIN = dh.Domain((560000, 4480000, 580000, 4500000), cell="1km", crs="EPSG:32618")
FIXED = dh.Neighbourhood(DOMAIN, "1km")
BOUNDARY = dh.Neighbourhood(DOMAIN, "1km", "boundary")
LIMITS = [("4km", 2), (math.inf, 4)]
LINE = dh.Neighbourhood(dh.Domain((0, 100), (20,)), 5)
WORDING = Path(__file__).parent / "goldens" / "statements"


def publish(near=FIXED, strategy="identity", **how):
    how = how if "rho" in how else {"epsilon": 1} | how
    return dh.publish(np.ones(near.domain.shape, dtype=int), near, strategy, **how)


def publish_step(number=0):
    mechanism = dh.Mechanism(BOUNDARY, dh.strategies.Identity(DOMAIN), dh.Budget(1 / 8))
    step = Step(Clock.of("2010-05-01", "1d"), number, 8, dh.Budget(1))
    account = dh.accounts.Account(dh.accounts.Window(8, epsilon=1), number)
    return dh.publishers.publish_mechanism(
        mechanism.with_changes(step=step), np.ones(DOMAIN.shape, dtype=int), account=account
    )


def publish_users(near=BOUNDARY):
    users = {"user": [1, 1, 2, 2], "max_per_user": 1}
    counts = dh.count(np.full((4, 2), 4_505_000.0), DOMAIN, outside="clamp", **users)
    return dh.publish(counts, replace(near, limits=LIMITS), dh.strategies.Identity(DOMAIN), 1.0)


def publish_series():
    return dh.Series(Clock.of("2010-05-01", "1d"), 0, 3, {step: publish_step(step) for step in (0, 1, 3)})


KINDS = {
    "counts": publish,
    "users": publish_users,
    "step": publish_step,
    "series": publish_series,
    "sorted": lambda: dh.publishers.publish_sorted(np.arange(100), LINE, 1.0),
    "quantile": lambda: dh.publishers.publish_quantile(np.arange(99), 0.5, LINE, 1.0),
}


def statement_of(kind):
    """Return the statement of a release, without the digests that its noise determines, and without the day."""
    text = re.sub(r"[0-9a-f]{64}", "0" * 64, write_statement(KINDS[kind]()))
    return re.sub(r"(?<=\nDate {16})\S+", "2026-01-01", text) + "\n"


@pytest.mark.parametrize("kind", KINDS)
def test_the_wording_is_the_reviewed_one(kind):
    assert {file.stem for file in WORDING.iterdir()} == set(KINDS), "run `python -m tests.goldens`, and review it"
    assert statement_of(kind) == (WORDING / f"{kind}.txt").read_text(encoding="utf-8")


def test_the_facts_are_complete():
    facts = list_facts(publish())
    assert json.dumps(facts)
    assert [round(row["deltas"]) for row in facts["protection"][:-1]] == [1, 2, 5, 10]
    assert facts["protection"][-1]["distance"] == pytest.approx(FIXED.diameter)
    assert facts["protection"][0]["guess"] == pytest.approx(math.e / (1 + math.e))
    assert (facts["total"], facts["unit_of_privacy"], facts["limits"]) == (DOMAIN.size, "point", [])
    facts = list_facts(publish_users())
    assert (facts["unit_of_privacy"], facts["points_per_user"]) == ("user", 1)
    gaussian = publish(rho=0.5)
    assert list_facts(gaussian)["epsilon_at_1e-6"] == pytest.approx(gaussian.guarantee.approximate(1e-6))


@pytest.mark.parametrize(("sources", "steps"), [(None, 1), ("boundary", 1), (shapely.Point(DOMAIN.low), 2)])
def test_delta_for_raw_coordinates_is_less_by_lattice_steps(sources, steps):
    """Rounding to the lattice takes a step from δ; a geometry's vertices are rounded too."""
    release = publish(dh.Neighbourhood(DOMAIN, "1km", sources))
    step = max(DOMAIN.step) / DOMAIN.scale
    facts = list_facts(release)
    assert facts["delta_guaranteed"] == pytest.approx(1000 - steps * step, abs=step / 100)
    assert f"{1000 - steps * step:.10g}" in " ".join(dict(list_rows(release))["δ"])


def test_limits_are_facts():
    release = publish(replace(FIXED, limits=LIMITS), "cumulative", epsilon=0.5)
    facts = list_facts(release)
    assert facts["limits"] == [
        {"distance": 4000.0, "factor": 2.0, "times": 2.0},
        {"distance": None, "factor": 4.0, "times": 4.0},
    ]
    rows = [(row["distance"], row["bound"]) for row in facts["protection"]]
    assert rows[:4] == [(1000, 0.5), (2000, 1), (4000, 1), (5000, 1.5)]
    assert [bound for _, bound in rows[4:]] == [2, 2]
    assert all(row["exact"] <= row["bound"] for row in facts["protection"])
    assert release.mechanism.promise.endswith("up to 1000 m, at most 2 ε up to 4 km, at most 4 ε however far")
    facts = list_facts(publish(replace(FIXED, limits=LIMITS), rho=0.1))
    assert facts["protection"][-1]["bound"] == pytest.approx(1.6)
    assert [limit["times"] for limit in facts["limits"]] == [4, 16]
    assert list_facts(publish(replace(BOUNDARY, limits=LIMITS)))["appear_anywhere"] <= 4
    # Having said that there are none makes no other promise.
    free = publish(dh.Neighbourhood(DOMAIN, "1km", limits=()))
    assert write_statement(free.mechanism) == write_statement(publish().mechanism)


@pytest.mark.parametrize("epsilon", [0.1, 3])
def test_a_guess_under_laplace_noise_is_right_as_often_as_said(epsilon):
    """One count that differs by 1: half of one and the total variation distance, which ε allows for exactly."""
    p = math.exp(-epsilon)
    k = np.arange(-2000, 2001)
    law = (1 - p) / (1 + p) * p ** np.abs(k)
    right = 0.5 + 0.25 * np.abs(law[1:] - law[:-1]).sum()
    assert bound_guess({"rho": None}, epsilon) == pytest.approx(right)


@pytest.mark.parametrize("rho", [1e-3, 0.5, 20])
def test_a_guess_under_gaussian_noise_is_right_no_more_often_than_said(rho):
    right = scipy.stats.norm.cdf(math.sqrt(2 * rho) / 2)
    said = bound_guess({"rho": rho}, rho)
    assert right <= said <= min(1, 0.5 + 1.4 * (right - 0.5) + 1e-12)


TITLE = 'Visits <script>alert("1")</script> & | more'


class Page(html.parser.HTMLParser):
    """The elements and the text of a page; a wrong end of an element is an error."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in {"meta", "br", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def list_elements(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


def test_the_page_needs_no_other_file_and_runs_nothing():
    release = publish()
    shown = write_statement(release, "html", TITLE)
    read = Page(shown)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in read.tags}
    places = re.findall(r"""(?:src|href)="([^"]*)|url\(([^)]*)\)""", shown)
    assert all((one or other).startswith("data:image/svg+xml;base64,") for one, other in places)
    assert read.text.count(TITLE) == 2  # of the window, and at the top
    assert read.list_elements("html") == [{"lang": "en"}]
    assert all(cell["scope"] in ("col", "row") for cell in read.list_elements("th"))
    assert all(each["alt"] for each in read.list_elements("img"))
    assert write_statement(release, "html", TITLE) == shown


@pytest.mark.parametrize(("kind", "pictures"), [("counts", 2), ("sorted", 1), ("quantile", 1), ("series", 1)])
def test_a_page_has_the_curve_and_the_map(kind, pictures):
    assert len(Page(write_statement(KINDS[kind](), "html")).list_elements("img")) == pictures
