"""Pictures: what is drawn is what was published, with units, and nothing is drawn over something else."""

import dataclasses
import itertools

import matplotlib.image
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import deltahist as dh
from deltahist.decode.merging import merged_cells
from deltahist.errors import InputError
from deltahist.plots import check_picture, plot_map, plot_protection, save_picture


def make(counts, *, crs="EPSG:32618", strategy=dh.strategies.Identity, budget=None, **how):
    nx, ny = counts.shape
    bounds = (580_000, 4_500_000, 580_000 + 250 * nx, 4_500_000 + 250 * ny) if crs else (0, 0, nx, ny)
    domain = dh.Domain(bounds, counts.shape, crs)
    near = dh.Neighbourhood(domain, delta=500 if crs else 2)
    return dh.publish(counts, near, strategy(domain), **(budget or {"epsilon": 1}), **how)


@pytest.fixture(scope="module")
def town():
    """A dense square of 8 × 8 cells in an empty map, and one hot cell."""
    counts = np.zeros((40, 32), dtype=np.int64)
    counts[8:16, 16:24] = 200
    counts[30, 5] = 5_000
    return make(counts, rng=np.random.default_rng(1))


def test_plain_map_shows_the_cells_where_they_are(town):
    ax = plot_map(town, plain=True)
    picture = ax.images[0]
    assert np.array_equal(picture.get_array(), town.cells().T)
    west, east, south, north = picture.get_extent()
    assert (west, south) == (580, 4500)
    assert (east, north) == (590, 4508)
    assert picture.origin == "lower"


def test_labels_have_units(town):
    ax = plot_map(town)
    assert ax.get_xlabel() == "easting (km, EPSG:32618)"
    assert ax.get_ylabel() == "northing (km)"
    assert "points per cell" in ax.images[0].colorbar.ax.get_ylabel()
    assert "Standard error of one cell" in ax.get_title()


def test_a_plane_has_its_own_units():
    release = make(np.ones((4, 4), dtype=np.int64), crs=None)
    ax = plot_map(release)
    assert ax.get_xlabel() == "x (units)"
    assert tuple(ax.images[0].get_extent()) == (0, 4, 0, 4)


def test_merging_keeps_sums_and_what_stands_out(town):
    shown = merged_cells(town)
    assert shown.sum() == pytest.approx(town.cells().sum())
    assert shown[30, 5] == pytest.approx(5_000, abs=50)
    assert np.abs(shown[8:16, 16:24] - 200).max() < 30
    assert np.abs(shown[20:40, 16:]).max() < 30  # an empty quarter
    assert len(np.unique(shown)) < town.domain.size / 3


def test_merging_does_not_invent_places():
    """Empty maps: something stands out by chance about once in a map; 20 maps with 120 wrong places would not do."""
    places = 0
    for seed in range(20):
        release = make(np.zeros((64, 64), dtype=np.int64), rng=np.random.default_rng(seed))
        places += len(np.unique(merged_cells(release))) - 1
    assert places < 64 * 64 * 20 / 50


def test_merging_follows_the_levels_of_a_hierarchy():
    counts = np.zeros((36, 36), dtype=np.int64)
    counts[6:12, 18:24] = 30
    domain_of = lambda domain: dh.strategies.Hierarchical(domain, 6)  # noqa: E731
    release = make(counts, strategy=domain_of, rng=np.random.default_rng(3))
    shown = merged_cells(release)
    assert shown[6:12, 18:24].mean() == pytest.approx(30, abs=3)
    assert shown.sum() == pytest.approx(release.cells().sum())


@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"rho": 0.1}])
def test_the_curve_never_understates_the_cost(budget):
    release = make(np.ones((20, 20), dtype=np.int64), strategy=dh.strategies.Cumulative, budget=budget)
    ax = plot_protection(release)
    bound, exact = ax.lines[:2]
    for line, which in ((bound, 1), (exact, 0)):
        x, y = line.get_data()
        assert line.get_drawstyle() == "steps-pre"
        for distance in (200, 500, 501, 1_000, 1_300, 2_499):
            drawn = y[np.searchsorted(x, distance - 1e-6)]
            true = float(release.mechanism.cost_within(distance)[which])
            assert drawn >= true - 1e-9
            if which:
                assert drawn == pytest.approx(true)
    assert "δ = 500 m" in [text.get_text() for text in ax.texts]
    assert ax.get_xlabel() == "distance r (m)"
    assert ax.get_ylabel().startswith("ε" if "epsilon" in budget else "ρ")


def test_one_dimension_is_drawn_as_steps_with_a_band():
    domain = dh.Domain((0, 50), (50,))
    near = dh.Neighbourhood(domain, delta=5, sources="left")
    release = dh.publish(np.arange(50), near, dh.strategies.Cumulative(domain), epsilon=1)
    ax = plot_map(release)
    band, line = ax.patches
    assert np.allclose(line.get_data().values, release.cells())
    error = dh.answer(release, dh.workloads.boxes([[10, 11]]))["std_error"][0]
    top, bottom = band.get_data().values[10], band.get_data().baseline[10]
    assert top - bottom == pytest.approx(2 * error)
    assert ax.get_xlabel() == "x (units)"


def texts_of(figure):
    return [t.get_text() for t in figure.findobj(lambda o: hasattr(o, "get_text")) if t.get_text()]


@pytest.mark.parametrize("only", [None, "map", "curve"])
@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_pictures_are_written_whole(town, tmp_path, only, form):
    save_picture(town, tmp_path / f"picture.{form}", only)
    assert [path.name for path in tmp_path.iterdir()] == [f"picture.{form}"]
    start = (tmp_path / f"picture.{form}").read_bytes()[:200]
    assert {"png": b"PNG", "svg": b"<?xml", "pdf": b"%PDF"}[form] in start


def test_a_picture_is_not_empty(town, tmp_path):
    save_picture(town, tmp_path / "map.png")
    pixels = matplotlib.image.imread(tmp_path / "map.png")
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50


@pytest.mark.parametrize("publishable", [True, False])
def test_seeded_releases_are_marked(town, tmp_path, monkeypatch, publishable):
    seen = []
    write = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (seen.extend(texts_of(self)), write(self, *a, **k))
    )
    save_picture(dataclasses.replace(town, publishable=publishable), tmp_path / "map.svg")
    assert ("NOT FOR PUBLICATION" in seen) != publishable
    assert any("δ = 500 m" in text and "ε = 1 per point" in text and "cells of" in text for text in seen)


@pytest.mark.parametrize("shape", [(60, 20), (20, 60), (1, 1), (2, 90)])
def test_no_text_is_cut_off_or_drawn_over_another(shape, tmp_path, monkeypatch):
    """Every label lies inside the figure, and no two overlap."""
    release = make(np.ones(shape, dtype=np.int64), rng=np.random.default_rng(0))
    boxes = []

    def look(self, path, **options):
        canvas = FigureCanvasAgg(self)
        canvas.draw()
        width, height = canvas.get_width_height()
        for text in drawn_texts(self):
            box = text.get_window_extent(canvas.get_renderer())
            assert min(box.x0, box.y0) >= -1, text
            assert box.x1 <= width + 1, text
            assert box.y1 <= height + 1, text
            boxes.append((text.get_text(), box))

    monkeypatch.setattr(Figure, "savefig", look)
    save_picture(release, tmp_path / "map.png")
    assert len(boxes) > 10
    for (text, box), (other, second) in itertools.combinations(boxes, 2):
        assert not box.shrunk(0.9, 0.6).overlaps(second.shrunk(0.9, 0.6)), (text, other)


def drawn_texts(figure):
    """Every text but the watermark, and of the ticks' labels those inside the axes."""
    yield from (text for text in figure.texts if "PUBLICATION" not in text.get_text())
    for ax in figure.axes:
        yield from (ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts)
        yield from ax.get_legend().get_texts() if ax.get_legend() else ()
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
            yield from (label for t in ticks for label in (t.label1, t.label2) if label.get_visible())


@pytest.mark.parametrize(("path", "only"), [("map.gif", None), ("map", None), ("map.png", "legend")])
def test_other_pictures_are_refused(path, only):
    with pytest.raises(InputError, match="must be"):
        check_picture(path, only)


def test_pyplot_keeps_no_state(town, tmp_path):
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    save_picture(town, tmp_path / "map.png")
    plot_map(town)
    assert plt.get_fignums() == before
