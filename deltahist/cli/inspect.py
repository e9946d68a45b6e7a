"""`deltahist inspect`: the privacy statement of a release."""

from __future__ import annotations

import json
from typing import Annotated

from deltahist.cli import console
from deltahist.cli.groups import ReleaseFile, open_release
from deltahist.cli.options import flag


def inspect(
    release: ReleaseFile, as_json: Annotated[bool, flag("--json", "The same as data.")] = False
) -> None:
    """Print the privacy statement of a release: who is protected, how well, at which distance.

    \b
    Examples:
      deltahist inspect city.parquet
      deltahist inspect city.parquet --json
    """
    published = open_release(release)
    if as_json:
        console.put(json.dumps(published.facts(), indent=2, ensure_ascii=False), None)
    else:
        console.put(published.statement(), None)
