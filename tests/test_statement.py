"""The privacy statement: each fact of a release is in its data, its text and its page."""

import html.parser
import json
import math
import re

import numpy as np
import pytest
import scipy.stats
import shapely

import deltahist as dh
from deltahist.counting import Counts
from deltahist.mechanisms.base import Step
from deltahist.preprocessing import UNPAID, Clock, Preprocessing
from deltahist.releases.page import render_page, save_statement
from deltahist.statement import bound_guess, explain_limits

DOMAIN = dh.Domain.from_cell((560000, 4480000, 580000, 4500000), "1km", "EPSG:32618")
FIXED = dh.Neighbourhood(DOMAIN, "1km")
BOUNDARY = dh.Neighbourhood(DOMAIN, "1km", "boundary")
LIMITS = [("4km", 2), (math.inf, 4)]
SQUARE = dh.Domain((0, 0, 1, 1), (16, 16))
LINE = dh.Neighbourhood(dh.Domain((0, 100), (20,)), 5)


def publish(near=FIXED, strategy="identity", **how):
    how = how if "rho" in how else {"epsilon": 1} | how
    return dh.publish(np.ones(near.domain.shape, dtype=int), near, strategy, **how)


def one_step():
    mechanism = dh.Mechanism(BOUNDARY, dh.strategies.Identity(DOMAIN), dh.Budget(1 / 8))
    step = Step(Clock.of("2010-05-01", "1d"), 0, 8, dh.Budget(1))
    account = dh.Account(dh.Window(8, epsilon=1), 0)
    return dh.publish(np.ones(DOMAIN.shape, dtype=int), mechanism.with_step(step), account=account)


def chosen_rows():
    private = Counts(np.ones(DOMAIN.shape, dtype=int), DOMAIN, Preprocessing(where="kind < 'b'"))
    account = dh.Account.total(epsilon=3, name="city")
    return dh.publish(private, FIXED, "identity", epsilon=1, account=account)


def kept_points(near=FIXED):
    users = {"user": [1, 1, 2, 2], "max_per_user": 1}
    counts = dh.count(np.full((4, 2), 4_505_000.0), DOMAIN, outside="clamp", **users)
    return dh.publish(counts, near, dh.strategies.Identity(DOMAIN), 1.0)


def weak():
    account = dh.Account.total(epsilon=100, name="people")
    return publish(epsilon=50, weak_protection_accepted=True, account=account)


def rows_of(release):
    return {label: " ".join(lines) for label, lines in release.rows()}


#: What a release is, rows that it must have with words in them, and rows that it must not have.
CASES = {
    "a map": (
        publish,
        {
            "May be published": "yes",
            "Guarantee": "ε = 1 (pure)",
            "In plain words": "73.2 of 100",
            "δ": "1,000 m = 1 × 1 cells",
            "Unit of privacy": "one point",
            "Neighbours": "who is in the data is fixed",
            "Number of points": "441, published exactly",
            "Noise": "laplace",
            "Map": "EPSG:32618",
            "Account": "Nothing tracks the total",
        },
        {"Limits", "Stream", "Chain", "Rows", "Dropped rows", "Dropped points", "Resolution", "Warning"},
    ),
    "gaussian noise from a seed": (
        lambda: publish(rho=0.5, rng=np.random.default_rng(1)),
        {"May be published": "no", "Guarantee": "ρ = 0.5", "Warning": "protects nobody"},
        {"Limits"},
    ),
    "users of several points": (
        lambda: publish(BOUNDARY, contributions=5, dropped=["bad rows", "points outside"]),
        {
            "Unit of privacy": "far from any source too",
            "Neighbours": "may be absent if within that distance of the domain's boundary",
            "In plain words": "people within 1 km of the domain's boundary",
            "Users": "at most 5 rows",
            "Dropped rows": "Rows without usable coordinates",
            "Dropped points": "the boundary is a source",
            "Number of points": "not published: who takes part is protected",
        },
        {"Warning"},
    ),
    "users of one point": (
        kept_points,
        {"Unit of privacy": "at most 1 point", "Neighbours": "the one kept point of one user"},
        {"Dropped rows"},
    ),
    "dropped rows": (
        lambda: publish(dropped=["bad rows"]),
        {"Number of points": "not published: rows were dropped"},
        {"Users"},
    ),
    "rows by a condition": (
        chosen_rows,
        {"Rows": "kind < 'b'", "Account": "'city' has spent ε = 1 of 3"},
        {"Users"},
    ),
    "numbers that do not determine cells": (
        lambda: publish(dh.Neighbourhood(SQUARE, 1 / 16), dh.strategies.ShiftedGrids(SQUARE, width=4, shift=1)),
        {"Resolution": "do not determine every cell"},
        {"Limits"},
    ),
    "limits": (
        lambda: publish(FIXED.with_limits(LIMITS), "cumulative", epsilon=0.5),
        {"Limits": "a move over up to 4 km costs at most 2 ε, any move at all at most 4 ε"},
        set(),
    ),
    "limits of arrivals": (
        lambda: publish(BOUNDARY.with_limits(LIMITS)),
        {"Limits": "or appearing within 4 km of the domain's boundary, costs at most 2 ε"},
        set(),
    ),
    "limits under rho": (
        lambda: publish(FIXED.with_limits(LIMITS), rho=0.1),
        {"Limits": "a move over up to 4 km costs at most 4 ρ, any move at all at most 16 ρ"},
        set(),
    ),
    "a step": (one_step, {"Stream": "step 2010-05-01 of a stream: every 8 steps in a row"}, {"Chain"}),
    "weak protection": (
        weak,
        {"May be published": "only if everybody", "Account": "'people' has spent ε = 50 of 100"},
        {"Warning"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_statement_says(name):
    make, expected, absent = CASES[name]
    release = make()
    rows = rows_of(release)
    json.dumps(release.facts())
    assert {label: words for label, words in expected.items() if words not in rows.get(label, "")} == {}
    assert not absent & rows.keys()
    # Text and pages show the same rows.
    text, page = " ".join(release.statement().split()), Page(render_page(release, "html")).text
    assert all(" ".join(f"{label} {words}".split()) in text for label, words in rows.items())
    assert all(line in page for _, lines in release.rows() for line in lines)
    assert release.statement().startswith("WEAK PROTECTION") == (name == "weak protection")


def test_the_facts_are_complete():
    facts = publish().facts()
    assert [round(row["deltas"]) for row in facts["protection"][:-1]] == [1, 2, 5, 10]
    assert facts["protection"][-1]["distance"] == pytest.approx(FIXED.diameter)
    assert facts["protection"][0]["guess"] == pytest.approx(math.e / (1 + math.e))
    assert facts["total"] == DOMAIN.size
    assert facts["delta"] == pytest.approx(1000)
    assert 1000 - facts["delta_guaranteed"] < 0.0011
    assert (facts["unit_of_privacy"], facts["points_per_user"], facts["limits"]) == ("point", None, [])
    facts = kept_points().facts()
    assert (facts["unit_of_privacy"], facts["points_per_user"]) == ("user", 1)
    gaussian = publish(rho=0.5)
    assert gaussian.facts()["epsilon_at_1e-6"] == pytest.approx(gaussian.guarantee.approximate(1e-6))


@pytest.mark.parametrize(
    ("sources", "steps"),
    [(None, 1), ("boundary", 1), (shapely.Point(DOMAIN.low), 2)],
    ids=["fixed", "boundary", "geometry"],
)
def test_delta_for_raw_coordinates_is_less_by_lattice_steps(sources, steps):
    """Rounding to the lattice takes a step from δ; a geometry's vertices are rounded too."""
    release = publish(dh.Neighbourhood(DOMAIN, "1km", sources))
    step = max(DOMAIN.step) / DOMAIN.scale
    facts = release.facts()
    assert facts["delta_guaranteed"] == pytest.approx(1000 - steps * step, abs=step / 100)
    assert facts["delta_guaranteed"] < facts["delta"]
    assert f"for raw coordinates {1000 - steps * step:.10g}" in rows_of(release)["δ"]


def test_limits_are_facts():
    release = publish(FIXED.with_limits(LIMITS), "cumulative", epsilon=0.5)
    facts = release.facts()
    assert facts["limits"] == [
        {"distance": 4000.0, "factor": 2.0, "times": 2.0},
        {"distance": None, "factor": 4.0, "times": 4.0},
    ]
    rows = [(row["distance"], row["bound"]) for row in facts["protection"]]
    assert rows[:4] == [(1000, 0.5), (2000, 1), (4000, 1), (5000, 1.5)]
    assert [bound for _, bound in rows[4:]] == [2, 2]
    assert all(row["exact"] <= row["bound"] for row in facts["protection"])
    line = "ε = 0.5 for each point moving up to 1000 m, at most 2 ε up to 4 km, at most 4 ε however far"
    assert release.mechanism.promise == line
    facts = publish(FIXED.with_limits(LIMITS), rho=0.1).facts()
    assert facts["protection"][-1]["bound"] == pytest.approx(1.6)
    assert [limit["times"] for limit in facts["limits"]] == [4, 16]
    assert publish(BOUNDARY.with_limits(LIMITS)).facts()["appear_anywhere"] <= 4
    # Having said that there are none makes no other promise.
    free = publish(dh.Neighbourhood(DOMAIN, "1km", limits=()))
    assert free.mechanism.statement() == publish().mechanism.statement()


def test_of_many_limits_a_few_are_named():
    near = FIXED.with_limits([(float(FIXED.delta_ground) * (1 + i / 8), 1 + i / 8) for i in range(1, 65)])
    assert len(near.profile) > 50
    assert explain_limits(near, "ε", 1).count("at most") == 4
    facts = publish(near).facts()
    assert len(facts["limits"]) == len(near.profile)
    assert len(facts["protection"]) <= 9
    assert publish(near).mechanism.promise.count("at most") == 1


def test_people_who_pay_by_themselves_are_stated():
    near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), 1, shapely.box(0, 0, 8, 8))
    counting = Preprocessing(dropped=(UNPAID,))
    found = dh.Mechanism(near, dh.strategies.Identity(near.domain), dh.Budget(epsilon=1), counting)
    assert not found.total_known
    assert "records of people who could not pay were left out" in " ".join(found.statement().split())
    assert dh.Mechanism.from_description({**found.describe(), "version": 2}).counting == counting


# --- guesses


@pytest.mark.parametrize("epsilon", [0.1, 1, 3])
def test_a_guess_under_laplace_noise_is_right_as_often_as_said(epsilon):
    """One count that differs by 1: half of one and the total variation distance, which ε allows for exactly."""
    p = math.exp(-epsilon)
    k = np.arange(-2000, 2001)
    law = (1 - p) / (1 + p) * p ** np.abs(k)
    right = 0.5 + 0.25 * np.abs(law[1:] - law[:-1]).sum()
    assert bound_guess({"rho": None}, epsilon, 1) == pytest.approx(right)


@pytest.mark.parametrize("rho", [1e-3, 0.02, 0.5, 2, 20])
def test_a_guess_under_gaussian_noise_is_right_no_more_often_than_said(rho):
    right = scipy.stats.norm.cdf(math.sqrt(2 * rho) / 2)
    said = bound_guess({"rho": rho}, rho, 1)
    assert right <= said <= min(1, 0.5 + 1.4 * (right - 0.5) + 1e-12)


def test_a_failure_probability_is_added_and_grows_with_the_distance():
    facts = {"rho": None, "epsilon": 1.0, "probability": 0.01}
    near, far = (bound_guess(facts, float(d), float(d)) for d in (1, 2))
    assert near == pytest.approx((math.e + 0.01) / (math.e + 1))
    assert far == pytest.approx((math.e**2 + 0.01 * (1 + math.e)) / (math.e**2 + 1))
    assert bound_guess(facts, 50.0, 50.0) is None
    assert bound_guess(facts, None, 50.0) is None


# --- pages

TITLE = 'Visits <script>alert("1")</script> & | more'
#: Elements that have no end.
EMPTY = {"meta", "br", "img"}


class Page(html.parser.HTMLParser):
    """The elements and the text of a page; a wrong end of an element is an error."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


def test_the_page_needs_no_other_file_and_runs_nothing():
    release = publish()
    shown = render_page(release, "html", TITLE)
    read = Page(shown)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in read.tags}
    places = re.findall(r"""(?:src|href)="([^"]*)|url\(([^)]*)\)""", shown)
    assert all((one or other).startswith("data:image/svg+xml;base64,") for one, other in places)
    assert read.text.count(TITLE) == 2  # of the window, and at the top
    assert read.all("html") == [{"lang": "en"}]
    assert all(cell["scope"] in ("col", "row") for cell in read.all("th"))
    assert all(each["alt"] for each in read.all("img"))
    assert render_page(release, "html", TITLE) == shown


def test_every_kind_of_release_has_its_page():
    sorted_points = dh.publish_sorted(np.arange(100), LINE, 1.0)
    line = dh.publish(np.arange(20), LINE, "identity", rho=0.5)
    made = {2: [publish()], 1: [sorted_points, line, dh.publish_quantile(np.arange(99), 0.5, LINE, 1.0)]}
    for pictures, releases in made.items():
        for release in releases:
            assert len(Page(render_page(release, "html")).all("img")) == pictures


def test_the_suffix_chooses_the_form(tmp_path):
    release = publish()
    for name, start in (("s.md", "# Visits \\<script\\>"), ("s.txt", "Visits <script>"), ("s.HTM", "<!DOCTYPE html>")):
        save_statement(release, tmp_path / name, TITLE)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    table = [line for line in (tmp_path / "s.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {6}
    assert release.statement() in (tmp_path / "s.txt").read_text(encoding="utf-8")
    with pytest.raises(dh.InputError):
        save_statement(release, tmp_path / "s.pdf")
