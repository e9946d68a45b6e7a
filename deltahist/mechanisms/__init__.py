"""Mechanisms: public choices of what to publish, made before any data are read. They store no data."""

from deltahist.mechanisms.base import BaseMechanism
from deltahist.mechanisms.histogram import Mechanism

__all__ = ["BaseMechanism", "Mechanism"]
