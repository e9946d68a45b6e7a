"""Releases: published numbers and their files."""

from deltahist.releases.base import BaseRelease
from deltahist.releases.histogram import Measurements, Release
from deltahist.releases.series import Series

__all__ = ["BaseRelease", "Measurements", "Release", "Series"]
