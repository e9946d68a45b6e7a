"""How colours look to eyes that lack a kind of cones, and how far apart they are then."""

import numpy as np
from matplotlib.colors import to_rgb

# Machado, Oliveira and Fernandes: A physiologically-based model for simulation of color vision deficiency. IEEE
# Transactions on Visualization and Computer Graphics 15(6), 2009, table at severity 1.0; they take linear RGB.
EYES = {
    "all cones": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# From linear sRGB to XYZ, for white at D65 (IEC 61966-2-1).
_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colours, eyes):
    """CIELAB (k, 3) of colours as some eyes see them."""
    rgb = np.array([to_rgb(colour) for colour in colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    share = np.clip(linear @ np.transpose(EYES[eyes]), 0, 1) @ _XYZ.T / _XYZ.sum(axis=1)
    root = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = root.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


def least_step(colours, eyes):
    """The least fall of lightness from a colour to the next; below zero where one is lighter than the one before."""
    return float(-np.diff(lab(colours, eyes)[:, 0]).max())


def least_distance(colours, eyes):
    """The least distance of two colours (ΔE of 1976)."""
    seen = lab(colours, eyes)
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)
    return float(apart[np.triu_indices(len(seen), 1)].min())
