"""Stand-ins for the three data sets of the 2014 paper, loaders for public files, and a small sample.

None of this is the paper's own data: `twitter_like_*` and `indoor_like` are seeded stand-ins.
See docs/internals/experiments.md.
"""

from datasets.indoor import indoor_like
from datasets.loaders import DataError, load
from datasets.registry import REGISTRY
from datasets.sample import sample_points
from datasets.twitter import twitter_like_north_america, twitter_like_world

__all__ = [
    "REGISTRY",
    "DataError",
    "indoor_like",
    "load",
    "sample_points",
    "twitter_like_north_america",
    "twitter_like_world",
]
