"""What all kinds of releases share. A release is a mechanism with its values. Only releases are made public."""

from __future__ import annotations

import abc
import base64
import datetime
import functools
import html
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from deltahist import _files
from deltahist.budget import Payment
from deltahist.errors import DamagedFile, InputError, check_choice, check_memory
from deltahist.laws import Guarantee, Law
from deltahist.mechanisms import BaseMechanism
from deltahist.mechanisms.base import OfMechanism
from deltahist.preprocessing import Preprocessing, check_line
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd
    import xarray as xr


_Release = TypeVar("_Release", bound="BaseRelease")
#: Names of estimates. The errors stated for non-negative estimates are those of the unbiased ones.
UNBIASED, NONNEGATIVE = "unbiased", "non-negative"
PLACED = "unbiased by noise (positions inside cells are assumed)"
#: Columns about cut cells. If a query cuts no cell, each equals the column named here, or is zero if none is named.
UNCUT = {"noise_error": "std_error", "placement_error": None, "cut": None, "inner": "estimate", "outer": "estimate"}
VERSION = 1


@dataclass(frozen=True)
class Notice:
    """A public notice of when and why a release was withdrawn. Readers look for a notice next to each release file.

    digest : SHA-256 of the release. reason : reason in one line. date : YYYY-MM-DD.

    >>> str(Notice("0" * 64, "wrong column", "2026-11-25"))
    'on 2026-11-25: wrong column'
    """

    digest: str
    reason: str
    date: str

    def __post_init__(self) -> None:
        check_line(reason=self.reason)
        datetime.date.fromisoformat(self.date)  # raises ValueError if it is not a date

    def __str__(self) -> str:
        return f"on {self.date}: {self.reason}"

    def save(self, path: Path) -> None:
        """Write the notice next to the file of its release."""
        readme = f"{path.name} (SHA-256 {self.digest}) was withdrawn {self}. Do not use it."
        content = {"format": "deltahist-withdrawal", "version": 2, **asdict(self), "readme": readme}
        text = json.dumps(content, indent=2) + "\n"
        _files.write_whole(Path(notice_path(path)), lambda part: part.write_text(text, encoding="utf-8"))


@dataclass(frozen=True)
class About:
    """What a release says about itself. All texts are public, and each is one line.

    title, publisher, contact, licence : texts for readers, such as "Visits in May" and "CC BY 4.0".
    date : day of publication (UTC), set by the publisher. Seeded noise sets no date, so that a seed gives one file.

    Raises InputError unless each text is one printable line of at most 1,000 characters.

    >>> About("Visits in May", licence=" CC BY 4.0 ").describe()
    {'title': 'Visits in May', 'licence': 'CC BY 4.0'}
    """

    title: str | None = None
    publisher: str | None = None
    contact: str | None = None
    licence: str | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        for name, text in self.describe().items():
            object.__setattr__(self, name, check_line(**{name: text}))
        datetime.date.fromisoformat(self.date or "2026-01-01")  # raises ValueError if it is not a date

    def describe(self) -> dict[str, str]:
        """Return the texts that are given, by name."""
        return {name: text for name, text in asdict(self).items() if text is not None}


def notice_path(path: str | Path) -> str:
    """Return the path or URL of the notice that would withdraw a release.

    >>> notice_path("maps/city.parquet"), notice_path("median.json")
    ('maps/city.withdrawn.json', 'median.json.withdrawn.json')
    """
    return str(path).removesuffix(".parquet") + ".withdrawn.json"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BaseRelease(OfMechanism, abc.ABC):
    """A mechanism and its values.

    mechanism : the public choices.
    values : the exact noisy whole numbers, int64.
    payment : the account that paid, and its spending so far; None if no account paid.
    withdrawn : the notice next to the file, if the release is withdrawn.
    about : title, date, publisher, contact and licence.
    """

    #: Class of the mechanism, and bytes of memory needed per cell and per value to read a file.
    mechanism_class: ClassVar[type[Any]]
    bytes_each: ClassVar[int] = 0
    #: Whether a publisher drew the noise from the operating system's entropy. False for seeded noise, and for values
    #: that deltahist did not draw. Only `mark_publishable` sets this. Constructors and `replace` cannot.
    publishable: ClassVar[bool] = False
    mechanism: BaseMechanism
    values: NDArray[np.int64]
    payment: Payment | None = None
    withdrawn: Notice | None = None
    about: About = About()

    def __post_init__(self) -> None:
        if self.values.shape != (self.mechanism.size,) or self.values.dtype != np.int64:
            raise InputError(
                f"values have shape {self.values.shape} and type {self.values.dtype}: there must be "
                f"{self.mechanism.size:,} int64 values ({self.mechanism.words})"
            )
        self.values.flags.writeable = False

    @property
    def neighbourhood(self) -> Neighbourhood:
        return self.mechanism.neighbourhood

    @property
    def domain(self) -> Domain:
        return self.mechanism.domain

    @property
    def counting(self) -> Preprocessing:
        """How rows were turned into counts: users, dropped rows and projection."""
        return self.mechanism.counting

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee under the neighbourhood."""
        return self.mechanism.guarantee

    @property
    def laws(self) -> tuple[Law, ...]:
        """The noise law of each group of values."""
        return self.mechanism.laws

    @property
    def total(self) -> int | None:
        """The number of points if it is public, else None."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready description. Together with `values`, it is enough to restore the release."""
        return {
            "format": self.mechanism.kind,
            "version": VERSION,
            **self.mechanism.describe(),
            "publishable": self.publishable,
            "account": None if self.payment is None else self.payment.describe(),
            "about": self.about.describe(),
        }

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of the description and the values, in 64 hexadecimal digits, as in the file (docs/limits.md)."""
        return _files.digest_of(json.loads(json.dumps(self.describe())), self.file_columns())

    @property
    def noise_origin(self) -> str:
        """A string that is equal for releases that share noise: their chain's name, or the digest of the original."""
        chain = self.mechanism.chain
        return self.digest if chain is None else chain.name or chain.origin

    def file_columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of the release file."""
        return {"value": self.values}

    def save(self, path: str | Path) -> None:
        """Write the columns to a Parquet file, with the description, the digest and a readme as metadata."""
        _files.write_whole(Path(path), self.write_file)

    def write_file(self, target: Path | BinaryIO) -> None:
        """Write the release file to a path or a buffer."""
        _files.write_parquet(target, self.file_columns(), self.describe(), self.digest, self.write_readme())

    @classmethod
    def read_fields(cls, description: dict[str, Any], values: NDArray[np.int64] | None) -> dict[str, Any]:
        """Return the constructor's arguments, such as the mechanism and the values, from an untrusted file."""
        return {"mechanism": cls.mechanism_class.from_description(description), "values": values}

    def cells(self, *, nonnegative: bool = False) -> NDArray[np.float64]:
        """Return estimates of all cells (domain.shape). Raises InputError if the release has no estimates of cells."""
        return self.estimate_cells(nonnegative=nonnegative)[0]

    @abc.abstractmethod
    def estimate_cells(self, *, nonnegative: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return estimates and standard errors of all cells (domain.shape). Raises the errors of `cells`."""

    @abc.abstractmethod
    def answer_workload(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Return the columns of `dh.answer`, each of shape (m,). Raises InputError if it cannot answer queries."""

    def name_estimator(self, nonnegative: bool) -> str:
        """Return the name used for the estimates in files and pictures."""
        return NONNEGATIVE if nonnegative else UNBIASED

    def to_pandas(self, *, nonnegative: bool = False) -> pd.DataFrame:
        """Return one row per cell: index, edges, centre, estimate and standard error. x varies slowest."""
        import pandas as pd

        domain = self.domain
        index = np.indices(domain.shape).reshape(domain.ndim, -1)
        low, high = (np.stack([domain.edges(axis)[each + end] for axis, each in enumerate(index)]) for end in (0, 1))
        names = [*("column", "row", "level")[: domain.ndim], *domain.sides, *"xyz"[: domain.ndim]]
        table: dict[str, NDArray[Any]] = dict(zip(names, [*index, *low, *high, *(low + high) / 2], strict=True))
        cells, errors = self.estimate_cells(nonnegative=nonnegative)
        return pd.DataFrame({**table, "estimate": cells.ravel(), "std_error": errors.ravel()})

    def to_geopandas(self, *, nonnegative: bool = False) -> gpd.GeoDataFrame:
        """Return `to_pandas` with polygons instead of edges. Raises InputError in one dimension."""
        import geopandas as gpd
        import shapely

        check_choice((2,), dimensions=self.domain.ndim)
        frame = self.to_pandas(nonnegative=nonnegative)
        shapes = shapely.box(*(frame.pop(side).to_numpy() for side in self.domain.sides))
        return gpd.GeoDataFrame(frame, geometry=shapes, crs=self.domain.crs)

    def to_xarray(self, *, nonnegative: bool = False) -> xr.Dataset:
        """Return `estimate` and `std_error` by cell centre, with x as the last axis."""
        crs, dims = self.domain.crs, ["z", "y", "x"][-self.domain.ndim :]
        # The dimension y comes first, so that plots of maps are the right way up.
        found = self.to_pandas(nonnegative=nonnegative).set_index(dims)[["estimate", "std_error"]].to_xarray()
        what = f"points per cell, {self.name_estimator(nonnegative)}"
        found["estimate"].attrs = {"units": "points", "long_name": what}
        found["std_error"].attrs = {"units": "points", "long_name": "standard error; do not add it or its square"}
        for axis in dims:
            found[axis].attrs = {"units": "1" if crs is None else "map units"}
        return found.assign_attrs({} if crs is None else {"crs": crs})

    def __repr__(self) -> str:
        """Return four lines: the measurement, the guarantee, the domain and the total."""
        domain, mechanism = self.domain, self.mechanism
        where = ", ".join(f"{b:.10g}" for b in domain.bounds) + (f" in {domain.crs}" if domain.crs else "")
        kept = f" kept, at most {mechanism.counting.contributions:,} of each user" if mechanism.counting.user else ""
        total = "not public" if self.total is None else f"{self.total:,}{kept}"
        warning = "" if mechanism.weakness is None else " (WEAK PROTECTION)"
        if self.withdrawn is not None or not self.publishable:
            warning = " (NOT for publication)" if self.withdrawn is None else " (WITHDRAWN)"
        return (
            f"{type(self).__name__}: {mechanism.words}\n"
            f"promise: {mechanism.promise}{warning}\n"
            f"domain: {' × '.join(map(str, domain.shape))} cells of {domain.size_of_cells}, {where}\n"
            f"points: {total}"
        )

    def _repr_html_(self) -> str:
        """Return the map, if there is one, and the lines of `repr` as HTML, for notebooks."""
        text = f"<pre>{html.escape(repr(self))}</pre>"
        if self.mechanism.determines_cells is None or self.domain.ndim == 3:
            return text
        from deltahist import plots

        picture = base64.b64encode(plots.draw_png(self)).decode()
        return f'<img alt="published map" src="data:image/png;base64,{picture}">{text}'

    @property
    def may_be_published(self) -> str:
        """Whether the release may be published: "yes", "no: <reason>" or "only if <condition>"."""
        if self.withdrawn is not None:
            return f"no: withdrawn {self.withdrawn}"
        return judge_publication(self.publishable, self.mechanism.weakness)

    def write_readme(self) -> str:
        """Return the text for people who open the release file with another program."""
        about = "".join(f"{name.capitalize()}: {text}.\n" for name, text in self.about.describe().items())
        return (
            f"{about}This file is a release of deltahist: figures about places, with random noise that hides people.\n"
            f"Promise: {self.mechanism.promise}.\n"
            f"May be published: {self.may_be_published}.\n"
            f"Column value: {self.mechanism.size:,} noisy whole numbers ({self.mechanism.words}).\n"
            "These are measurements, not cells: one may count many cells, and share noise with others.\n"
            "Use deltahist to read cells and sums with standard errors, and to print the privacy statement.\n"
            "It also verifies the file, except for these lines."
        )


def judge_publication(publishable: bool, weakness: str | None) -> str:
    """Return whether a release may be published: "yes", "no: <reason>" or "only if <condition>"."""
    if not publishable:
        return "no: noise from a seeded generator, or numbers that deltahist did not publish"
    return "yes" if weakness is None else f"only if everybody in the data accepts weak protection: {weakness}"


def mark_publishable(release: _Release, publishable: bool) -> _Release:
    """Return the release, marked as publishable or unpublishable. Only publishers and the file reader may call this."""
    marked = replace(release)
    vars(marked)["publishable"] = publishable
    return marked


def read_content(
    kinds: Mapping[str, type[BaseRelease]], description: dict[str, Any], digest: str, file: Any, path: str
) -> BaseRelease:
    """Return the release from an open file (`read_described`), which is untrusted input.

    Raises DamagedFile unless the restored release has the description and digest of the file. The check detects
    altered numbers, and a description whose noise, groups, total or bounds do not follow from the public choices.
    """
    made: Any = kinds[_files.check_format(description, path, kinds, VERSION)]
    size = math.prod(int(n) for n in description["domain"]["shape"])
    rows = 0 if file is None else file.metadata.num_rows
    check_memory(made.bytes_each * (max(size, 0) + rows), f"release file {path!r}")
    fields = made.read_fields(description, None if file is None else _files.read_values(file))
    fields |= {"payment": Payment.from_description(description.get("account")), "about": About(**description["about"])}
    release: BaseRelease = mark_publishable(made(**fields), description["publishable"] is True)
    own = json.loads(json.dumps(release.describe()))
    differing = [name for name in own if own[name] != description.get(name)]
    if differing or release.digest != digest:
        raise DamagedFile(
            f"release file {path!r} was altered ({' and '.join(differing) or 'digest'}): get the publisher's file again"
        )
    return release


def attach_notice(release: _Release, path: str | Path) -> _Release:
    """Return the release, marked as withdrawn if a notice is next to its file (or, for a link, next to the target).

    A notice is untrusted input. Raises DamagedFile if a notice cannot be read or is about a different release.
    """
    stored = _files.is_stored_file(path)
    places = [str(path)] if stored else dict.fromkeys([str(path), str(Path(path).resolve())])
    most = 1 << 16
    for place in map(notice_path, places):
        try:
            if stored:
                content = _files.read_object(place, "notice", most)
            elif not os.path.lexists(place):
                continue
            else:
                with _files.open_regular(Path(place), "notice") as file:
                    content = file.read(most)  # truncates a longer file, which is then invalid JSON
            found = json.loads(content)
            _files.check_format(found, place, ("deltahist-withdrawal",), 2)
            digest = check_choice((release.digest,), digest=found["digest"])
            notice = Notice(digest, found["reason"], found["date"])
        except _files.UnseenObject:
            continue
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, OSError) as problem:
            raise DamagedFile(
                f"release file {str(path)!r} may have been withdrawn, but the notice {place!r} cannot be read "
                f"({_files.first_line(problem)}): get both files from the publisher again"
            ) from None
        return mark_publishable(replace(release, withdrawn=notice), release.publishable)
    return release


def join_answers(found: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Concatenate columns of answers that were computed in batches."""
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in max(found, key=len)}
    for each in found:
        for name, parts in columns.items():
            source = name if name in each else UNCUT[name]
            parts.append(np.zeros(len(each["estimate"])) if source is None else each[source])
    return {name: np.concatenate(parts) for name, parts in columns.items()}
