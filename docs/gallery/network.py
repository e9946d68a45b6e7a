"""Friends see the street, strangers the town

One user shares her home over a network. Each further step adds noise: a circle is an answer and its typical error.
Users who pool their answers learn no more than the closest of them.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import Delaunay

import deltahist as dh

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

# An invented network: neighbours in a triangulation of 120 places know each other.
places = np.random.default_rng(5).random((120, 2))
sides = Delaunay(places).simplices[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
edges = sides[np.hypot(*(places[sides[:, 0]] - places[sides[:, 1]]).T) < 0.16]
owner = np.hypot(*(places - 0.5).T).argmin()

network = dh.network.Network.from_edges(edges, nodes=range(120))
mechanism = dh.network.DiffusionMechanism(network, "4*exp(-0.5d)", alpha=100, columns=("x", "y"))
diffusion = dh.network.Diffusion({owner: (0, 0)}, mechanism, rng=np.random.default_rng(1))
answers = diffusion.responses([(owner, user) for user in range(120) if user != owner])
rings = answers.drop_duplicates("distance").sort_values("distance", ascending=False)  # equal distances, equal answers

figure, (left, right) = plt.subplots(1, 2, figsize=(5.2, 3.7), width_ratios=(1, 1.15))
left.plot(*places[edges].T, color="0.8", linewidth=0.8, zorder=0)
colours = plt.get_cmap("viridis_r")(answers.distance / answers.distance.max())
left.scatter(*places[answers.requester.astype(int)].T, color=colours, s=28)
left.plot(*places[owner], "*", color="C1", markersize=16)
left.set_aspect("equal", anchor="N")
left.set_axis_off()
left.set_title("who asks")
for ring in rings.itertuples():
    x, y, radius = ring.x / 1000, ring.y / 1000, ring.rmse / 1000
    colour = plt.get_cmap("viridis_r")(ring.distance / answers.distance.max())
    right.add_patch(plt.Circle((x, y), radius, facecolor=colour, edgecolor="white"))
    if ring.distance > 5:
        right.text(x, y + 0.97 * radius, f"{ring.distance:.0f} steps", color="white", ha="center", va="top")
right.plot(0, 0, "*", color="C1", markersize=8)
right.set_aspect("equal", anchor="N")
right.autoscale_view()
right.set_title("what they may learn")
right.set_xlabel("km from home")
figure.suptitle("The closer the friend, the clearer the answer", x=0.03, ha="left")
figure.savefig(sys.argv[1])
