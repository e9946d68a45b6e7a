"""What every kind of release says and answers, from seeded noise."""

import io
import json
import re
from contextlib import redirect_stdout

import numpy as np

import deltahist as dh
from deltahist.cli import main
from deltahist.cli.app import COMMANDS

PLANE = dh.Domain(bounds=(0, 0, 12_000, 9_000), shape=(12, 9), crs="EPSG:32618")
LINE = dh.Domain(bounds=(0, 40), shape=(40,))
#: Strategies by name, each with a neighbourhood that it serves.
STRATEGIES = {
    "auto": {},
    "identity": {},
    "wavelet": {},
    "hierarchical": {},
    "hierarchical:3": {},
    "cumulative": {},
    "cumulative:prefix": {},
    "shifted:4,2": {},
    "dyadic": {},
    "tents": {},
    "tents:3,2": {},
    "flow": {},
    "flow:2": {},
    "spectral": {},
}
BOXES = {
    2: [
        [0, 0, 12_000, 9_000],
        [1_000, 2_000, 5_000, 4_000],
        [1_250, 2_600, 5_125, 4_000],
        [3_100, 100, 3_900, 700],
    ],
    1: [[0, 40], [3, 9], [2.25, 7.5], [11.25, 11.5]],
}


def counts_on(domain):
    """Return counts that look like two towns."""
    axes = np.meshgrid(*(np.arange(n) for n in domain.shape), indexing="ij")
    near = [
        sum((axis - n * part) ** 2 for axis, n in zip(axes, domain.shape, strict=True)) for part in (0.3, 0.8)
    ]
    return np.rint(80 * np.exp(-near[0] / 6) + 30 * np.exp(-near[1] / 3)).astype(np.int64)


def neighbourhoods(domain):
    """Return one neighbourhood of each kind of promise."""
    delta = 2_000 if domain.ndim == 2 else 2
    yield "fixed", dh.Neighbourhood(domain, delta), {"epsilon": 1}
    yield "boundary", dh.Neighbourhood(domain, delta, sources="boundary"), {"rho": 0.5}
    yield "limits", dh.Neighbourhood(domain, delta, limits=[(2 * delta, 2), (np.inf, 4)]), {"epsilon": 0.5}


def rounded(value):
    """Return JSON data with floats of seven digits: linear algebra differs in the last ones from machine to machine."""
    if isinstance(value, float | np.floating):
        return float(f"{float(value) or 0.0:.7g}") if abs(value) > 1e-9 else 0.0
    if isinstance(value, dict):
        return {str(key): rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [rounded(each) for each in np.asarray(value, object).tolist()] if len(value) else []
    return value.item() if isinstance(value, np.generic) else value


def text_of(data):
    """Return data as text, a line for each entry, without what is drawn from the system's entropy."""
    said = json.dumps(rounded(data), ensure_ascii=False, indent=1, default=str)
    said = re.sub(r"\[[^][{}]*\]", lambda found: re.sub(r"\s+", " ", found[0]), said)
    return re.sub(r"[0-9a-f]{16,}", "DIGITS", said) + "\n"


def columns(frame):
    """Return a frame's columns as lists."""
    return {str(name): frame[name].tolist() for name in frame.columns}


def said_by(release):
    """Return all that a release says of itself."""
    return {
        "describe": release.describe(),
        "statement": release.statement().splitlines(),
        "summary": repr(release).splitlines(),
        "values": np.asarray(release.values).ravel().tolist()[:60],
    }


def histogram(release, kind):
    """Return what a release of counts says and answers."""
    boxes = dh.workloads.boxes(BOXES[release.domain.ndim])
    said = said_by(release) | {
        "answers": columns(dh.answer(release, boxes)),
        "expected": dh.expected_error(release.strategy, release.neighbourhood, boxes, epsilon=1),
    }
    if kind == "fixed":  # estimates that are not negative take long, and know a promise by its noise alone
        said["cells"] = release.cells().ravel()[:40]
        said["nonnegative"] = columns(dh.answer(release, boxes, nonnegative=True))
    return said


def histograms():
    """Yield releases of counts, by their names."""
    for domain in (LINE, PLANE):
        for kind, near, budget in neighbourhoods(domain):
            for name in STRATEGIES:
                if "spectral" in name and near.sources is not None:
                    continue
                try:
                    release = dh.publish(
                        counts_on(domain),
                        near,
                        name,
                        **budget,
                        rng=np.random.default_rng(1),
                        weak_protection_accepted=True,
                    )
                except dh.InputError as problem:
                    yield f"{domain.ndim}-d {kind} {name}", str(problem)
                else:
                    yield f"{domain.ndim}-d {kind} {name}", histogram(release, kind)


def chains(folder):
    """Yield the releases of a chain and a copy."""
    near = dh.Neighbourhood(PLANE, 2_000)
    for budget in ("epsilon", "rho"):
        state, rng = folder / f"{budget}.state", np.random.default_rng(2)
        first = dh.publish(counts_on(PLANE), near, "flow", **{budget: 0.5}, state=state, rng=rng)
        finer = dh.refine(first, state, **{budget: 1}, rng=rng)
        copy = dh.tighten(finer, state=state, **{budget: 0.25}, rng=rng)
        for name, release in (("first", first), ("finer", finer), ("copy", copy)):
            yield f"chain {budget} {name}", said_by(release)


def on_lines():
    """Yield sorted points and quantiles."""
    points = np.repeat(np.linspace(0, 39.5, 80), 2)
    for sources in (None, "left"):
        near = dh.Neighbourhood(LINE, 2, sources=sources)
        more = {} if sources is None else {"most": 300}
        release = dh.publish_sorted(points, near, epsilon=1, rng=np.random.default_rng(3), **more)
        yield (
            f"sorted {sources}",
            said_by(release) | {"answers": columns(dh.answer(release, dh.workloads.boxes(BOXES[1])))},
        )
    near = dh.Neighbourhood(LINE, 2)
    found = dh.publish_quantile(points, 0.5, near, epsilon=1, rng=np.random.default_rng(4))
    yield "quantile", {"describe": found.describe(), "statement": found.statement().splitlines()}


def people():
    """Yield reports of users and answers over a network."""
    rng = np.random.default_rng(5)
    clients = dh.Clients(["cafe", "park", "museum"] * 20, dh.Rappor(bits=16, cohorts=2), rng=rng)
    report = clients.report(rng=rng)
    yield "reports", {"bits": report.bits.sum(axis=0), "guarantee": str(clients.mechanism)}
    network = dh.Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "dan")])
    mechanism = dh.DiffusionMechanism(network, "exp(3-d)", alpha=100, columns=("x", "y"))
    homes = {"ann": (586_000, 4_512_000), "bob": (583_500, 4_507_000), "dan": (583_000, 4_508_000)}
    yield (
        "answers over a network",
        columns(dh.Diffusion(homes, mechanism, rng=np.random.default_rng(6)).to("cem")),
    )


def choices():
    """Yield what planning says."""
    near = dh.Neighbourhood(PLANE, 2_000)
    boxes = dh.workloads.boxes(BOXES[2])
    plan = dh.plan(near, boxes, epsilon=1)
    yield "plan", [[each.label, each.rmse, each.cost, each.any_move, each.resolves] for each in plan]
    yield "allocation", dh.allocate_offline(np.array([1, 0, 2, 1, 1, 3]), length=3, epsilon=1)


def commands(folder):
    """Yield what the commands print of one release, and all help pages."""
    near = dh.Neighbourhood(PLANE, 2_000)
    release = dh.publish(counts_on(PLANE), near, "flow", epsilon=1, rng=np.random.default_rng(7))
    file = folder / "r.parquet"
    release.save(file)
    for line in (
        "inspect FILE",
        "inspect FILE --json",
        "statement FILE",
        "query FILE --box 1250,2600,5125,4000",
        "query FILE --box 1250,2600,5125,4000 --format json",
    ):
        yield (
            line,
            printed([str(file) if word == "FILE" else word for word in line.split()]).replace(
                str(file), "FILE"
            ),
        )
    for ending in ("md", "html"):
        main(["statement", str(file), "--out", str(folder / f"s.{ending}")])
        page = (folder / f"s.{ending}").read_text(encoding="utf-8")
        yield f"statement in {ending}", re.sub('base64,[^"]+', "base64,PICTURE", page)
    for ending in ("csv", "geojson"):
        main(["export", str(file), "--out", str(folder / f"c.{ending}")])
        yield f"cells in {ending}", (folder / f"c.{ending}").read_text(encoding="utf-8")
    for name in COMMANDS:
        yield f"help of {name}", printed([name, "--help"])


def printed(line):
    """Return what a command prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        main(line)
    return re.sub(r"[0-9a-f]{16,}", "DIGITS", out.getvalue())


def groups(folder):
    """Return all cases by group: pairs of a name and its text or data."""
    return {
        "histograms": histograms,
        "chains": lambda: chains(folder),
        "lines": on_lines,
        "people": people,
        "choices": choices,
        "commands": lambda: commands(folder),
    }


def written(cases):
    """Return the text of a group's cases."""
    texts = ((name, case if isinstance(case, str) else text_of(case)) for name, case in cases)
    return "".join(f"==== {name}\n{text.rstrip()}\n" for name, text in texts)
