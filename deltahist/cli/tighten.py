"""`deltahist tighten`: a more private copy of a release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltahist.cli import console
from deltahist.cli.groups import OVERWRITE, RELEASE, Spending, open_release
from deltahist.cli.options import option
from deltahist.cli.refine import chain_summary


def tighten(
    *,
    release: Path = RELEASE,
    out: Path = option("FILE", "The more private copy (Parquet).", default=...),
    spending: Spending,
    state: Path | None = option("FILE", "State of its chain; needed for flows with sums along the lines."),
    overwrite: bool = OVERWRITE,
) -> Any:
    """Make a more private copy of a release, for others than have it; the data are not needed.

    Further noise makes it as if it had been released at the smaller budget. Nothing is spent. Where the strategy is
    a flow with sums along the lines, which `auto` often takes, the release alone does not suffice: give the state
    of its chain.

    \b
    Examples:
      deltahist tighten city.parquet --epsilon 0.2 --out city-public.parquet
      deltahist tighten city.parquet --state city.state --epsilon 0.2 --out city-public.parquet
    """
    from deltahist.publishers.gradual import tighten as coarser

    console.check_target(out, release, state, replace=overwrite)
    made = coarser(open_release(release), state=state, **spending.keywords())
    made.save(out)
    print(chain_summary(made, out, None))
    return made
