"""Pictures of a release: its map, its answers for regions, and what protection is left at which distance."""

from deltahist.plots.cells import plot_map
from deltahist.plots.drawn import Drawn
from deltahist.plots.pictures import PICTURES, check_picture, picture, save_picture
from deltahist.plots.protection import plot_protection
from deltahist.plots.regions import plot_intervals, plot_regions

__all__ = [
    "PICTURES",
    "Drawn",
    "check_picture",
    "picture",
    "plot_intervals",
    "plot_map",
    "plot_protection",
    "plot_regions",
    "save_picture",
]
