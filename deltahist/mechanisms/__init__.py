"""Mechanisms: what will be published, fixed before any data are read. Public: none of them sees data."""

from deltahist.mechanisms.base import BaseMechanism
from deltahist.mechanisms.histogram import Mechanism

__all__ = ["BaseMechanism", "Mechanism"]
