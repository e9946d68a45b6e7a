"""How many points users have, as it was published: a line whose places are numbers of points, with a user at each."""

from __future__ import annotations

import numpy as np

from deltahist.errors import InputError
from deltahist.releases.histogram import Release


def users_by_points(release: Release) -> dict[int, int]:
    """Numbers of users by their number of points, for `deltahist.advise`; no more is known of it than was published.

    Parameters
    ----------
    release : counts of users on a line with a cell for each number of points, from 1 (bounds 0.5 to n + 0.5); those
        with more are counted at n.

    Raises
    ------
    InputError
        If the release is none of such a line, or shows no users.

    >>> import deltahist as dh
    >>> line = dh.Domain((0.5, 4.5), (4,))
    >>> near = dh.Neighbourhood(line, 3)  # a user's number of points may be any other
    >>> release = dh.publish(dh.count([1] * 5000 + [2] * 900 + [4] * 800, line), near, "identity", 1)
    >>> users = users_by_points(release)
    >>> abs(users[1] - 5000) < 100 and abs(users[4] - 800) < 100
    True
    """
    domain = release.domain
    if domain.ndim != 1 or domain.low != (0.5,) or domain.cell != (1.0,):
        raise InputError(
            f"the release has {' × '.join(map(str, domain.shape))} cells from {domain.low}: it must be a line with a "
            "cell for each number of points of a user, bounds 0.5 to n + 0.5"
        )
    whole = np.rint(np.maximum(release.cells(nonnegative=True), 0.0)).astype(np.int64)
    found = {points: int(users) for points, users in enumerate(whole.tolist(), start=1) if users}
    if not found:
        raise InputError("the release shows no users: nothing stands out from its noise")
    return found
