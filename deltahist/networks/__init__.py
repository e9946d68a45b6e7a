"""Networks: who knows whom, how far apart two users are, and which ε goes with a distance. All of it is public."""

from deltahist.networks.distances import Distances, distances_of
from deltahist.networks.files import read_network, read_pairs
from deltahist.networks.levels import PrivacyLevels
from deltahist.networks.network import Network

__all__ = ["Distances", "Network", "PrivacyLevels", "distances_of", "read_network", "read_pairs"]
