"""The statement as a page: complete by itself, well formed, and safe whatever its title says."""

import html.parser
import math
import re

import numpy as np
import pytest
import scipy.stats
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import deltahist as dh
from deltahist.releases.page import bound_guess, check_page, render_page, save_statement

DOMAIN = dh.Domain.from_cell((583_000, 4_505_000, 587_000, 4_508_000), "500m", "EPSG:32618")
NEAR = dh.Neighbourhood(DOMAIN, "1km")
LINE = dh.Neighbourhood(dh.Domain((0, 100), (20,)), 5)
TITLE = 'Visits <script>alert("1")</script> & | more'
#: Elements that have no end.
EMPTY = {"meta", "br", "img"}


def of(kind):
    if kind == "map":
        counts = np.arange(DOMAIN.size).reshape(DOMAIN.shape) % 7
        return dh.publish(counts, NEAR, "identity", epsilon=1)
    if kind == "line":
        return dh.publish(np.arange(20), LINE, "identity", rho=0.5)
    if kind == "sorted":
        return dh.publish_sorted(np.arange(100), LINE, 1.0)
    return dh.publish_quantile(np.arange(99), 0.5, LINE, 1.0)


class Page(html.parser.HTMLParser):
    """What a page is made of; a wrong end of an element is an error."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def release():
    return of("map")


@pytest.fixture(scope="module")
def shown(release):
    return render_page(release, "html", TITLE)


def test_the_page_needs_no_other_file_and_runs_nothing(shown):
    read = Page(shown)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in read.tags}
    places = re.findall(r"""(?:src|href)="([^"]*)|url\(([^)]*)\)""", shown)
    assert all((one or other).startswith(("#", "data:image/svg+xml;base64,")) for one, other in places)
    assert "@import" not in shown


def test_the_map_says_which_estimates_it_shows(release, shown, monkeypatch):
    # Whether as small a map falls back is up to its noise.
    assert release.estimator(True).startswith("non-negative (")
    drawn = release.estimator(release.draws_nonnegative())
    assert f"The published map. Estimates: {drawn}." in Page(shown).text
    monkeypatch.setattr("deltahist.releases.histogram.MOST_NONNEGATIVE", 1)
    assert "The published map. Estimates: unbiased." in Page(render_page(of("map"), "html")).text


def test_pictures_can_be_read_on_a_telephone(release, monkeypatch):
    """Of 360 dots the page's edges take 32; their letters are 11 dots high at least, and inside the picture."""
    letters = []

    def measure(figure, *_, **__):
        FigureCanvasAgg(figure).draw()
        width, height = figure.get_size_inches() * figure.dpi
        for text in figure.findobj(Text):
            box = text.get_window_extent()
            if text.get_text().strip() and text.get_visible() and box.x1 > 0 and box.x0 < width:
                letters.append((text.get_fontsize() * 328 / (72 * figure.get_figwidth()), text.get_text()))
        for ax in figure.axes:
            for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
                box = text.get_window_extent()
                assert 0 <= box.x0 <= box.x1 <= width, text
                assert 0 <= box.y0 <= box.y1 <= height, text

    monkeypatch.setattr(Figure, "savefig", measure)
    render_page(release, "html")
    assert len(letters) > 20
    assert min(letters)[0] >= 11, min(letters)


def test_the_title_is_text(shown):
    read = Page(shown)
    assert read.text.count(TITLE) == 3  # of the window, at the top, in the citation
    assert "alert(" not in shown.replace("alert(&quot;", "")


def test_the_page_can_be_read_aloud(shown):
    read = Page(shown)
    assert read.all("html") == [{"lang": "en"}]
    assert len(read.all("h1")) == 1
    assert len(read.all("h2")) == 5
    assert [cell["scope"] for cell in read.all("th")].count("col") == 4
    assert all(cell["scope"] in ("col", "row") for cell in read.all("th"))
    pictures = read.all("img")
    assert len(pictures) == 2
    assert all(each["alt"] for each in pictures)
    assert read.all("caption")


@pytest.mark.parametrize(
    ("verdict", "how"),
    [
        ("yes", {"epsilon": 1}),
        ("no", {"epsilon": 1, "rng": np.random.default_rng(1)}),
        ("only if everybody in the data accepts weak protection", {"epsilon": 50, "weak_protection_accepted": True}),
    ],
)
def test_the_judgement_comes_first(verdict, how):
    made = dh.publish(np.ones(DOMAIN.shape, dtype=int), NEAR, "identity", **how)
    first = render_page(made, "html").split("<h2>")[0]
    assert f'class="judgement {verdict.split()[0]}"><strong>May be published: {verdict}.</strong>' in first


@pytest.mark.parametrize(("kind", "pictures"), [("map", 2), ("line", 1), ("sorted", 1), ("quantile", 1)])
def test_every_kind_of_release_has_its_page(kind, pictures):
    made = of(kind)
    read = Page(render_page(made, "html"))
    assert len(read.all("img")) == pictures
    said = " ".join(read.text.split())
    # The same facts in all forms.
    for line in made.statement().splitlines()[2:]:
        label, _, text = line.strip().partition("  ")
        if label in ("Neighbours", "Bounds", "Unit of privacy"):
            assert " ".join(text.split()) in said


def test_the_same_release_makes_the_same_page(release, shown):
    assert render_page(release, "html", TITLE) == shown


def test_markdown_keeps_its_tables(release):
    said = render_page(release, "markdown", TITLE)
    assert said.startswith("# Visits \\<script\\>")
    rows = [line for line in said.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {5}
    assert "| 1 km | 73.2 of 100 | 1 | 1 |" in rows


def test_the_suffix_says_the_form(release, tmp_path):
    for name, start in (("s.md", "# Visits"), ("s.txt", "Visits <script>")):
        save_statement(release, tmp_path / name, TITLE)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert release.statement() in (tmp_path / "s.txt").read_text(encoding="utf-8")
    with pytest.raises(dh.InputError, match=r"output is 's\.pdf': its suffix must be one of \.html"):
        check_page("s.pdf")
    assert check_page("S.HTM") == "html"


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
