"""Who may be confused with whom."""

from deltahist.neighbourhood.neighbourhood import Neighbourhood

__all__ = ["Neighbourhood"]
