"""Releases: what was published, and the files that hold it."""

from deltahist.releases.base import BaseRelease
from deltahist.releases.histogram import Release
from deltahist.releases.series import Series
from deltahist.releases.sorted import SortedRelease

__all__ = ["BaseRelease", "Release", "Series", "SortedRelease"]
