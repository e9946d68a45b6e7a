"""Pictures of a release: its map, its answers for regions, and what protection is left at which distance.

>>> import pathlib, tempfile, deltahist as dh, numpy as np
>>> near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), 1)
>>> release = dh.publish(np.full((8, 8), 90), near, epsilon=1)
>>> with tempfile.TemporaryDirectory() as folder:
...     dh.plots.save_picture(release, pathlib.Path(folder, "map.svg"), "map")
...     pathlib.Path(folder, "map.svg").stat().st_size > 1000
True
"""

from deltahist.plots.cells import plot_map
from deltahist.plots.curves import plot_frontier, plot_protection, protection_curve, save_frontier
from deltahist.plots.ground import PICTURES
from deltahist.plots.pictures import check_picture, picture, save_picture
from deltahist.plots.regions import plot_intervals, plot_regions

__all__ = [
    "PICTURES",
    "check_picture",
    "picture",
    "plot_frontier",
    "plot_intervals",
    "plot_map",
    "plot_protection",
    "plot_regions",
    "protection_curve",
    "save_frontier",
    "save_picture",
]
