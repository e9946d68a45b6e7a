"""The public files that `datasets.load` can read: their addresses, hashes and parsers.

Every hash was computed from a file we have. Where we have only an excerpt, the complete file has no hash here: load it
with a hash that you trust, `load(..., sha256=...)`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Entry:
    """A public file.

    Attributes
    ----------
    title : str
        A short description.
    sha256, size : str, int
        Hash and size of the file, or of the text inside a gzip file, which does not depend on the compression.
    urls : tuple of str
        Addresses of this file, tried in turn. If there are none, only a local `path` can be loaded.
    excerpt : str
        How the file differs from the published original; empty if it does not.
    origin, citation, licence : str
        The file's origin, its citation, and what is known about its licence.
    parse : callable
        Turns the (decompressed) bytes into a table or an array.
    """

    title: str
    sha256: str
    size: int
    urls: tuple[str, ...]
    excerpt: str
    origin: str
    citation: str
    licence: str
    parse: Callable[[bytes], Any]


def person_activity(text: bytes) -> Any:
    """Parse tag readings: person, sequence, tag, t (s since the sequence began), x, y, z (m), activity.

    Reads both published forms: with a header and row numbers, or with neither but with the date written out.
    """
    import pandas as pd

    published = ["sequence", "tag", "ticks", "date", "x", "y", "z", "activity"]
    numbered = ["id", "sequence", "tag", "ticks", "x", "y", "z", "activity"]
    has_header = text[:2].lower() == b"id"
    names = numbered if has_header else published
    table = pd.read_csv(io.BytesIO(text), names=names, skiprows=int(has_header))
    table["person"] = table.sequence.str[0]
    start = table.groupby("sequence").ticks.transform("min")
    table["t"] = (table.ticks - start) / 1e7  # a tick is 100 ns
    return table[["person", "sequence", "tag", "t", "x", "y", "z", "activity"]]


def gowalla(text: bytes) -> Any:
    """Parse check-ins: user, time (UTC), lat, lon (degrees), place."""
    import pandas as pd

    table = pd.read_csv(io.BytesIO(text), sep="\t", names=["user", "time", "lat", "lon", "place"])
    table["time"] = pd.to_datetime(table.time, utc=True)
    return table


def histogram(content: bytes) -> np.ndarray:
    """Parse counts, int64 (256, 256). The file contains floats and does not say which axis is x."""
    stored = np.load(io.BytesIO(content), allow_pickle=False)
    counts = stored.astype(np.int64)
    if not np.array_equal(counts, stored):
        raise ValueError("the array contains fractions: it is not a histogram of counts")
    return counts


def edges(text: bytes) -> Any:
    """Parse undirected edges: u, v."""
    import pandas as pd

    return pd.read_csv(io.BytesIO(text), sep=" ", names=["u", "v"], comment="#")


def table(text: bytes) -> Any:
    """Parse a CSV file with a header."""
    import pandas as pd

    return pd.read_csv(io.BytesIO(text))


_RAW = "https://raw.githubusercontent.com/"
_ACTIVITY = "Sobhan1996/XGB_Experiment/a235f941fd61f04819aae79cebdd1cace78a26b9/"
_DPBENCH = "dpcomp-org/dpcomp_core/233cfcc380320860ab957003b7b6271e0c2027c1/dpcomp_core/datafiles/2D/"
_DPBENCH_PAPER = "Hay, Machanavajjhala, Miklau, Chen, Zhang: Principled evaluation of DP algorithms (SIGMOD 2016)"
_NONE_STATED = "none stated"

REGISTRY = {
    "uci-person-activity": Entry(
        title="UCI 'Localization Data for Person Activity' (the paper's dataset 3), first tenth",
        sha256="fbed2baaf8b796ae8c23f55ef0d355c9a091d86144250c5fce8727d963b8d428",
        size=1_837_816,
        urls=(_RAW + _ACTIVITY + "ConfLongDemo_JSI.txt",),
        excerpt="the first 16,486 of 164,860 readings: sequences A01 to A03 of one person, header added",
        origin="github Sobhan1996/XGB_Experiment, ConfLongDemo_JSI.txt, byte for byte",
        citation="Kaluza, Mirchevska, Dovgan, Lustrek, Gams: An agent-based approach to care in independent "
        "living (AmI 2010)",
        licence=_NONE_STATED,
        parse=person_activity,
    ),
    "snap-loc-gowalla": Entry(
        title="SNAP loc-gowalla check-ins, New York City",
        sha256="46827820c05bae38bc8674fbeb291104e8cd2f32179afc53b4552c0e388acb9e",
        size=8_707_782,
        urls=(),
        excerpt="138,957 check-ins of 7,115 users in New York, packed anew (the hash is of the text inside)",
        origin="github rohitpandey13/academy, tutorials/geo-located-data/jupyter/notebooks/data/gowalla_events.csv.gz",
        citation="Cho, Myers, Leskovec: Friendship and mobility (KDD 2011)",
        licence=_NONE_STATED + " for the data; the repository that holds the excerpt is GPL-3",
        parse=gowalla,
    ),
    "dpbench-twitter": Entry(
        title="DPBench 2-D histogram of 193,563 tweets in the western USA, 256 by 256",
        sha256="53112f29267039617756542e9ab811e7817473a4e547c027b7ef2c2169e0b2d4",
        size=524_368,
        urls=(_RAW + _DPBENCH + "twitter_256_256.npy",),
        excerpt="",
        origin="github dpcomp-org/dpcomp_core, twitter_256_256.npy",
        citation=_DPBENCH_PAPER,
        licence=_NONE_STATED,
        parse=histogram,
    ),
    "dpbench-cabspotting": Entry(
        title="DPBench 2-D histogram of 464,040 taxi trip starts in San Francisco, 256 by 256",
        sha256="70b5c25fbd019b020b441ae1a3f7b9633e8eab678fe6a3301da10f2d5c6e3d70",
        size=524_368,
        urls=(_RAW + _DPBENCH + "cabspottingS_256_256.npy",),
        excerpt="",
        origin="github dpcomp-org/dpcomp_core, cabspottingS_256_256.npy",
        citation=_DPBENCH_PAPER,
        licence=_NONE_STATED,
        parse=histogram,
    ),
    "snap-ego-facebook": Entry(
        title="SNAP ego-Facebook: 4,039 people, 88,234 friendships",
        sha256="f41c026ed8af3cc3359f1ca5573d0605fb09ae0eefa34544b820fd8c6e2ef296",
        size=854_362,
        urls=(),
        excerpt="a copy from which one added comment line was removed; it has the size of the published file",
        origin="github Padam-0/facebook_viral_advertising, facebook_combined.txt",
        citation="McAuley, Leskovec: Learning to discover social circles in ego networks (NIPS 2012)",
        licence=_NONE_STATED,
        parse=edges,
    ),
    "twitter-hashtags": Entry(
        title="67,931 hashtags of tweets in North America with their positions",
        sha256="c62d9ac0a6b76d2bea6e40018763cb0a29f035c56a2c03cdcd644c9ee9945c4c",
        size=2_085_597,
        urls=(),
        excerpt="decoded from hashtags100k.txt into hashtag, lat, lon (the hash is of the text inside)",
        origin="github uber-common/deck.gl-data, website/hashtags100k.txt",
        citation="deck.gl-data",
        licence="MIT for the repository; the origin of the tweets is not stated",
        parse=table,
    ),
    "opensky-flights": Entry(
        title="471,876 flights of nine days in 2020: origin and destination",
        sha256="6d43620c6696582dc8b1512bd8bd5803b01f6a3a2fa7939c3bc29ab4fd470845",
        size=21_471_259,
        urls=(),
        excerpt="nine of the twelve daily files in one table (the hash is of the text inside)",
        origin="github uber-common/deck.gl-data, examples/globe/2020-*.csv",
        citation="presumably Strohmeier, Olive, Luebbe, Schaefer, Lenders: Crowdsourced air traffic data "
        "from the OpenSky Network 2019-20 (ESSD 2021); the repository does not say",
        licence="MIT for the repository; the origin of the flights is not stated",
        parse=table,
    ),
}
