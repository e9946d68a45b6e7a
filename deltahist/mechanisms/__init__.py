"""Mechanisms are public choices of what to publish. They are made before any data are read, and store no data."""

from deltahist.mechanisms.base import BaseMechanism
from deltahist.mechanisms.histogram import Mechanism

__all__ = ["BaseMechanism", "Mechanism"]
