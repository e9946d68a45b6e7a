"""Distance-aware differentially private maps and range queries."""

from deltahist import strategies
from deltahist.domain import Domain
from deltahist.neighbourhood import Neighbourhood
from deltahist.sensitivity import sensitivity
