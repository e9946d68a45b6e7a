"""Files of secret states: arrays and a description, whole or not at all, and for the owner's eyes only."""

from __future__ import annotations

import json
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist._files import check_format, check_secret, write_whole
from deltahist.errors import DamagedFile, InputError, fits_memory

#: Version of all kinds of states; older ones stay readable.
_VERSION = 1
#: Name of the description among the arrays.
_DESCRIPTION = "description"


def new_token() -> str:
    """What tells a writing from all others: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def write_state(
    path: Path,
    form: str,
    description: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    token: str,
    *,
    new: bool = False,
) -> None:
    """Write a state of a form, durably; its token tells this writing from all others.

    Raises InputError if the folder does not exist or cannot be written; if the state is `new` and there is one already.
    """
    said = {"format": form, "version": _VERSION, "token": token, **description}
    named = {_DESCRIPTION: np.frombuffer(json.dumps(said).encode(), dtype=np.uint8), **arrays}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **named)

    if not write_whole(path, write, secret=True, replace=not new):
        raise InputError(
            f"state {str(path)!r} exists already: it belongs to something else, and is never overwritten; name a new "
            "file, or go on with that one"
        )


def read_state(path: Path, form: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]], str]:
    """Description, arrays and token of a state.

    Raises
    ------
    InputError
        If there is no such file, others than its owner can read it, or it is of a newer version.
    DamagedFile
        If it is truncated, of another form or something else.
    """
    if not path.is_file():
        raise InputError(f"state {str(path)!r} does not exist: nothing can go on without the one that was written")
    if zipfile.is_zipfile(path):  # what is no state is called that, not a state that others can read
        check_secret(path, "state")
        if path.stat().st_nlink > 1:
            raise InputError(
                f"state {str(path)!r} has {path.stat().st_nlink} names (hard links), and each of them would refine the "
                f"same noise: leave one (`find FOLDER -samefile {str(path)!r}` shows them); nothing was drawn or spent"
            )
    try:
        with zipfile.ZipFile(path) as parts:
            fits_memory(sum(part.file_size for part in parts.infolist()), f"state {str(path)!r}")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        description = json.loads(arrays.pop(_DESCRIPTION).tobytes())
        check_format(description, str(path), form=form, version=_VERSION)
        return description, arrays, str(description["token"])
    except InputError:
        raise
    except Exception as problem:  # NumPy reads headers as programs are read, and stumbles in as many ways
        raise DamagedFile(
            f"state {str(path)!r} is truncated or no state: {problem}; nothing was drawn or spent"
        ) from None
