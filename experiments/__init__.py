"""The tables and figures of the 2014 paper, one short script for each, and experiments that go beyond them.

`python -m experiments.table3 [--small] [--out DIR]` runs one script; `python -m experiments` runs all of them.
docs/internals/experiments.md explains the main results and compares them with the paper.
"""

#: In the order of the paper.
SCRIPTS = (
    "table1_2",
    "table3",
    "figure1",
    "figure2",
    "table4",
    "figure3",
    "table5",
    "figure4",
    "flow_squares",
    "figure5",
    "figure6",
    "figure7",
    "figure8",
    "decoding",
    "gradual_city",
    "sample_paths",
    "rappor_relaxing",
    "live_city",
    "compare_2d",
    "compare_peers",
    "districts",
    "ego_network",
    "gowalla_years",
    "proximity_network",
    "series_places",
    "tour",
)
