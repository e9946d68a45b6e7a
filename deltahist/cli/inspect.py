"""`deltahist inspect`: the privacy statement of a release."""

from __future__ import annotations

from pathlib import Path

from deltahist.cli import console
from deltahist.cli.groups import RELEASE, open_release
from deltahist.cli.options import flag


def inspect(release: Path = RELEASE, as_json: bool = flag("The same as data.", names="--json")) -> None:
    """Print the privacy statement of a release: who is protected, how well, at which distance.

    \b
    Examples:
      deltahist inspect city.parquet
      deltahist inspect city.parquet --json
    """
    published = open_release(release)
    if as_json:
        console.put_json(published.facts())
    else:
        console.put(published.statement())
