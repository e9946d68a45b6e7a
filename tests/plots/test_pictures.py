"""Files of pictures: written whole, marked, with what was promised, and nothing is drawn over something else."""

import itertools

import geopandas as gpd
import numpy as np
import pytest
import shapely
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import deltahist as dh
from deltahist.plots import save_picture
from tests.plots.conftest import made


def zones_of(release, number, within=None):
    """Districts: the parts of the map, or of some cells, that are nearest to random places."""
    domain = release.domain
    low, high = domain.bounds[:2], domain.bounds[2:]
    if within is not None:
        low, high = (np.array(domain.low) + 250 * np.array(corner) for corner in (within[:2], within[2:]))
    places = np.random.default_rng(4).uniform(low, high, (number, 2))
    frame = shapely.box(*low, *high)
    parts = shapely.get_parts(shapely.voronoi_polygons(shapely.multipoints(places), extend_to=frame))
    names = [f"District {i}" for i in range(len(parts))]
    return gpd.GeoDataFrame({"name": names}, geometry=shapely.intersection(parts, frame), crs=domain.crs)


@pytest.mark.parametrize(
    ("shape", "look"),
    [
        ((40, 30), {}),
        ((40, 30), {"nonnegative": True, "only": "map"}),
        ((60, 4), {}),
        ((4, 60), {"only": "map"}),
        ((40, 30), {"regions": 25, "within": (12, 10, 18, 16), "title": "A very long title " * 40}),
    ],
)
def test_no_text_is_cut_off_or_drawn_over_another(shape, look, tmp_path, monkeypatch):
    """Every label lies inside the figure, and no two overlap."""
    rng = np.random.default_rng(0)
    release = made(rng.geometric(0.02, shape), rng=rng)
    look = dict(look)
    if number := look.pop("regions", None):
        look["answers"] = dh.answer(release, zones_of(release, number, look.pop("within", None)))
    boxes = []

    def measure(self, path, **options):
        canvas = FigureCanvasAgg(self)
        canvas.draw()
        width, height = canvas.get_width_height()
        for text in filter(lambda text: text.get_text(), drawn_texts(self)):
            box = text.get_window_extent(canvas.get_renderer())
            assert min(box.x0, box.y0) >= -1, text
            assert box.x1 <= width + 1, text
            assert box.y1 <= height + 1, text
            boxes.append((text.get_text(), box))

    monkeypatch.setattr(Figure, "savefig", measure)
    save_picture(release, tmp_path / "map.png", **look)
    assert len(boxes) > 6
    for (text, box), (other, second) in itertools.combinations(boxes, 2):
        assert not box.shrunk(0.9, 0.6).overlaps(second.shrunk(0.9, 0.6)), (text, other)


def drawn_texts(figure):
    """Every text but the watermark and the tightest labels of regions, and of the ticks' labels those inside."""
    yield from (text for text in figure.texts if "PUBLICATION" not in text.get_text())
    for ax in figure.axes:
        yield from (ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label)
        yield from ax.get_legend().get_texts() if ax.get_legend() else ()
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
            yield from (label for t in ticks for label in (t.label1, t.label2) if label.get_visible())
