"""Releases: published numbers and their files."""

from deltahist.releases.base import About, BaseRelease
from deltahist.releases.histogram import Measurements, Release
from deltahist.releases.series import Series

__all__ = ["About", "BaseRelease", "Measurements", "Release", "Series"]
