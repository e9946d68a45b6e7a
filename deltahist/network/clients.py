"""RAPPOR clients, which keep permanent bits secret and report them with less and less noise. Private.

Source: Erlingsson, Pihur and Korolova 2014; Koufogiannis, Han and Pappas 2015, section 4.1.
Proofs: docs/privacy/rappor.md.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import exclusive
from deltahist.budget import Budget
from deltahist.errors import InputError
from deltahist.mechanisms.base import weakness_of
from deltahist.network.rappor import Channel, Rappor, Reports
from deltahist.noise.exact import open_words, throw_coins
from deltahist.publishers.publication import new_token, read_state, refuse_weak, write_state

_FORMAT = "deltahist-rappor-state"
Bits = NDArray[np.uint8]


class Clients:
    """The users of a RAPPOR collection, each with a string. Private.

    Each `report` adds new noise to the permanent bits. `relax` makes the permanent bits less noisy. `refine` then
    repeats the last report with less noise. All reports together cost the `guarantee` of the latest settings.

    Parameters
    ----------
    texts : one private string per user. mechanism : the settings.
    cohorts : public cohort numbers from 0, one per user, independent of the strings; None draws them at random.
    weak_protection_accepted : accept settings that hardly protect anything (docs/privacy/weak.md).
    rng : a seeded generator, for experiments only. All reports are then marked as not for publication.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> clients = Clients(["cafe", "museum"] * 500, Rappor(f=0.5, p=0, q=1), rng=rng)
    >>> first = clients.report(rng=rng)
    >>> clients = clients.relax(f=0.25, rng=rng)
    >>> last = clients.refine(rng=rng)
    >>> last.decode(["cafe", "museum", "park"])["significant"].tolist()
    [True, True, False]
    """

    def __init__(
        self,
        texts: Sequence[str],
        mechanism: Rappor,
        cohorts: ArrayLike | None = None,
        *,
        weak_protection_accepted: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        _check_protection(mechanism, weak_protection_accepted, rng)
        if cohorts is None:
            cohorts = open_words(rng)(len(texts)) % np.uint64(mechanism.cohorts)
        cohorts = np.asarray(cohorts).astype(np.int64)
        # Bloom filters (users, m), computed once for each distinct string.
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        which = np.array([places[text] for text in texts], dtype=np.int64)
        true = np.zeros((len(texts), mechanism.bits), dtype=np.uint8)
        np.put_along_axis(true, mechanism.find_positions(list(places))[which, cohorts], 1, axis=1)
        permanent = _draw_bits(mechanism.permanent, true, rng)
        self._set_state(mechanism, cohorts, true, permanent, None, rng is None)

    def _set_state(
        self, mechanism: Rappor, cohorts: NDArray[np.int64], true: Bits, permanent: Bits,
        report: Reports | None, publishable: bool, file: Path | None = None, token: str = "",
    ) -> None:  # fmt: skip
        self.mechanism, self.cohorts, self._true, self._permanent = mechanism, cohorts, true, permanent
        self._report, self._publishable, self._file, self._token = report, publishable, file, token
        self._relaxed, self._alone, self._process = False, threading.Lock(), os.getpid()

    def report(self, *, rng: np.random.Generator | None = None) -> Reports:
        """Report each user's permanent bits with new noise."""
        with self._alone:
            self._check_current()
            return self._publish_report(_draw_bits(self.mechanism.instantaneous, self._permanent, rng), rng)

    def refine(self, *, rng: np.random.Generator | None = None) -> Reports:
        """Repeat the last report with the smaller noise of the current settings, or make the first report."""
        with self._alone:
            self._check_current()
            law, last = self.mechanism.instantaneous, self._report
            if last is None:
                return self._publish_report(_draw_bits(law, self._permanent, rng), rng)
            coarse = last.mechanism.to_report(self.mechanism)
            return self._publish_report(_refine_bits(coarse, law, self._permanent, last.bits, rng), rng)

    def relax(
        self, *, weak_protection_accepted: bool = False, rng: np.random.Generator | None = None, **rates: Any
    ) -> Clients:
        """Return the same users with a new f, p or q (`Rappor.relaxed`) and less noise in their permanent bits.

        Use only the returned users afterwards. The same users can be relaxed only once, because two refinements of the
        same bits would together cost more than either. Source: 2015, section 4.1.
        """
        mechanism = self.mechanism.relaxed(**rates)
        _check_protection(mechanism, weak_protection_accepted, rng)
        with self._alone:
            self._check_current()
            permanent = _refine_bits(self.mechanism.permanent, mechanism.permanent, self._true, self._permanent, rng)
            publishable = self._publishable and rng is None
            out = object.__new__(Clients)
            out._set_state(mechanism, self.cohorts, self._true, permanent, self._report, publishable)
            out._write_file(self._file, self._token, self._report, publishable)
            self._relaxed = True
            return out

    def save(self, path: str | Path) -> None:
        """Write the state to a secret file. Later reports update the file before they are returned."""
        with self._alone:
            self._check_current()
            self._write_file(Path(path), self._token, self._report, self._publishable)

    @classmethod
    def load(cls, path: str | Path) -> Clients:
        """Load users from a file that `save` wrote. Later reports update the file.

        Never load a copy of the file, because each state may be relaxed only once.
        """

        def parse(description: dict[str, Any], arrays: dict[str, NDArray[Any]], token: str) -> Clients:
            mechanism, said = Rappor.from_description(description["mechanism"]), description["report"]
            cohorts, publishable = arrays["cohorts"].astype(np.int64), bool(description["publishable"])

            def unpack(name: str) -> Bits:
                packed = arrays[name].reshape(len(cohorts), -(-mechanism.bits // 8))
                return np.unpackbits(packed, axis=1, count=mechanism.bits)

            past = None if said is None else Rappor.from_description(said)
            report = None if past is None else Reports(past, cohorts, unpack("report"), publishable)
            users, true, permanent = object.__new__(cls), unpack("true"), unpack("permanent")
            users._set_state(mechanism, cohorts, true, permanent, report, publishable, Path(path), token)
            return users

        return read_state(Path(path), _FORMAT, parse)  # type: ignore[no-any-return]

    def _write_file(self, file: Path | None, token: str, report: Reports | None, publishable: bool) -> None:
        """Write the state to `file`, if any. `token` identifies the last write to the file, or is "" for a new file."""
        if file is None:
            return
        description = {"mechanism": self.mechanism.describe(), "report": None, "publishable": publishable}
        bits = {"true": self._true, "permanent": self._permanent}
        if report is not None:
            description["report"], bits["report"] = report.mechanism.describe(), report.bits
        arrays: dict[str, NDArray[Any]] = {name: np.packbits(each, axis=1) for name, each in bits.items()}
        arrays["cohorts"] = self.cohorts
        with exclusive(file, "state") if token else contextlib.nullcontext():
            self._check_current(file, token)
            written = new_token()
            write_state(file, _FORMAT, description, arrays, written, new=not token)
        self._file, self._token = file, written

    def _check_current(self, file: Path | None = None, token: str = "") -> None:
        changed = file is not None and token and read_state(file, _FORMAT)[2] != token
        if changed or self._relaxed or self._process != os.getpid():
            rule = "use the users that relax() returned, or load the file"
            raise InputError(f"these users were relaxed, belong to another process or differ from their file: {rule}")

    def _publish_report(self, drawn: Bits, rng: np.random.Generator | None) -> Reports:
        report = Reports(self.mechanism, self.cohorts, drawn, self._publishable and rng is None)
        self._write_file(self._file, self._token, report, report.publishable)
        self._report, self._publishable = report, report.publishable
        return report

    def __getstate__(self) -> None:
        raise TypeError("users cannot be copied or pickled: a copy could be refined a second time")


def _draw_bits(law: Channel, true: Bits, rng: np.random.Generator | None) -> Bits:
    if law.exact:
        return true
    return throw_coins((law.zero, law.one), true, open_words(rng)).view(np.uint8)


def _refine_bits(coarse: Channel, law: Channel, true: Bits, before: Bits, rng: np.random.Generator | None) -> Bits:
    """Draw less noisy bits, given the noisier bits `before`."""
    if law.exact:
        return true
    return throw_coins(law.find_refinement(coarse), 2 * true + before, open_words(rng)).view(np.uint8)


def _check_protection(mechanism: Rappor, accepted: bool, rng: np.random.Generator | None) -> None:
    """Refuse settings that hardly protect anything (docs/privacy/weak.md), unless `accepted` or `rng` is set."""
    if rng is None and not accepted:
        refuse_weak(Budget(mechanism.guarantee.epsilon), weakness_of(mechanism.guarantee))
