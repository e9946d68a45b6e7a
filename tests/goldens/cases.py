"""Numbers of every kind of release, drawn from seeded noise, and their answers."""

import json

import numpy as np

import deltahist as dh

PLANE = dh.Domain(bounds=(0, 0, 12_000, 9_000), shape=(12, 9), crs="EPSG:32618")
LINE = dh.Domain(bounds=(0, 40), shape=(40,))
STRATEGIES = (
    *("auto", "identity", "wavelet", "hierarchical", "hierarchical:3", "cumulative", "cumulative:prefix"),
    *("shifted:4,2", "dyadic", "tents", "tents:3,2", "flow", "flow:2", "spectral"),
)
BOXES = {
    2: [[0, 0, 12_000, 9_000], [1_000, 2_000, 5_000, 4_000], [1_250, 2_600, 5_125, 4_000], [3_100, 100, 3_900, 700]],
    1: [[0, 40], [3, 9], [2.25, 7.5], [11.25, 11.5]],
}


def counts_on(domain):
    """Return counts that look like two towns."""
    axes = np.meshgrid(*(np.arange(n) for n in domain.shape), indexing="ij")
    near = [sum((axis - n * part) ** 2 for axis, n in zip(axes, domain.shape, strict=True)) for part in (0.3, 0.8)]
    return np.rint(80 * np.exp(-near[0] / 6) + 30 * np.exp(-near[1] / 3)).astype(np.int64)


def neighbourhoods(domain):
    """Return one neighbourhood of each kind of promise."""
    delta = 2_000 if domain.ndim == 2 else 2
    yield "fixed", dh.Neighbourhood(domain, delta), {"epsilon": 1}
    yield "boundary", dh.Neighbourhood(domain, delta, sources="boundary"), {"rho": 0.5}
    yield "limits", dh.Neighbourhood(domain, delta, limits=[(2 * delta, 2), (np.inf, 4)]), {"epsilon": 0.5}


def rounded(value):
    """Return JSON data with floats of seven digits, since linear algebra differs in the last ones between machines."""
    if isinstance(value, float | np.floating):
        return float(f"{float(value) or 0.0:.7g}") if abs(value) > 1e-9 else 0.0
    if isinstance(value, dict):
        return {str(key): rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [rounded(each) for each in np.asarray(value, object).tolist()] if len(value) else []
    return value.item() if isinstance(value, np.generic) else value


def numbers_of(release):
    """Return the first released numbers."""
    return np.asarray(release.values).ravel().tolist()[:40]


def histogram(release, kind):
    """Return numbers, answers and estimates of a release of counts."""
    boxes = dh.workloads.boxes(BOXES[release.domain.ndim])
    answers = dh.answer(release, boxes)
    found = {
        "values": numbers_of(release),
        "estimates": answers["estimate"].tolist(),
        "errors": answers["std_error"].tolist(),
        "expected": dh.expected_error(release.strategy, release.neighbourhood, boxes, epsilon=1),
    }
    if kind == "fixed":  # non-negative estimates are slow
        found["cells"] = release.cells().ravel()[:20]
        # The iteration that finds them ends elsewhere on other machines, within its tolerance.
        nearest = dh.answer(release, boxes, nonnegative=True)["estimate"]
        found["nonnegative"] = [float(f"{each:.4g}") for each in nearest]
    return found


def histograms(folder):
    """Yield releases of counts with their names."""
    for domain in (LINE, PLANE):
        for kind, near, budget in neighbourhoods(domain):
            for name in STRATEGIES:
                if "spectral" in name and near.sources is not None:
                    continue
                rng = np.random.default_rng(1)
                try:
                    release = dh.publish(
                        counts_on(domain), near, name, **budget, rng=rng, weak_protection_accepted=True
                    )
                except dh.InputError:
                    yield f"{domain.ndim}-d {kind} {name}", "refused"
                else:
                    yield f"{domain.ndim}-d {kind} {name}", histogram(release, kind)


def chains(folder):
    """Yield the releases of a chain and a tightened copy."""
    near = dh.Neighbourhood(PLANE, 2_000)
    for budget in ("epsilon", "rho"):
        state, rng = folder / f"{budget}.state", np.random.default_rng(2)
        first = dh.publish(counts_on(PLANE), near, "flow", **{budget: 0.5}, state=state, rng=rng)
        finer = dh.refine(first, state, **{budget: 1}, rng=rng)
        copy = dh.tighten(finer, state=state, **{budget: 0.25}, rng=rng)
        for name, release in (("first", first), ("finer", finer), ("copy", copy)):
            yield f"{budget} {name}", numbers_of(release)


def sorted_points(folder):
    """Yield sorted points of one dimension."""
    points = np.repeat(np.linspace(0, 39.5, 80), 2)
    for sources in (None, "left"):
        near = dh.Neighbourhood(LINE, 2, sources=sources)
        more = {} if sources is None else {"most": 300}
        release = dh.publishers.publish_sorted(points, near, epsilon=1, rng=np.random.default_rng(3), **more)
        yield (
            f"sources {sources}",
            {
                "values": numbers_of(release),
                "estimates": dh.answer(release, dh.workloads.boxes(BOXES[1]))["estimate"].tolist(),
            },
        )


def network(folder):
    """Yield noisy places shared over a network."""
    graph = dh.network.Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "dan")])
    mechanism = dh.network.DiffusionMechanism(graph, "exp(3-d)", alpha=100, columns=("x", "y"))
    homes = {"ann": (586_000, 4_512_000), "bob": (583_500, 4_507_000), "dan": (583_000, 4_508_000)}
    answers = dh.network.Diffusion(homes, mechanism, rng=np.random.default_rng(6)).to("cem")
    yield "to cem", {str(name): answers[name].tolist() for name in ("x", "y")}


#: What has a file of its own, by its name.
GROUPS = {each.__name__: each for each in (histograms, chains, sorted_points, network)}


def written(cases):
    """Return a group's cases as text, a line for each list of numbers."""
    out = []
    for name, case in cases:
        parts = case if isinstance(case, dict) else {"": case}
        out += [f"{name} {part}: {json.dumps(rounded(found))}" for part, found in parts.items()]
    return "\n".join(out) + "\n"
