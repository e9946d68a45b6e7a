"""Files of secret states: arrays and a description, whole or not at all, and for the owner's eyes only."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist._files import check_secret, write_whole
from deltahist.errors import DamagedFile, InputError, fits_memory

#: Name of the description among the arrays, and of what changes with every writing.
_DESCRIPTION, _TURN = "description", "turn"


def new_turn() -> bytes:
    """What tells a writing from all others."""
    return os.urandom(16)


def write_state(
    path: Path,
    description: dict[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    turn: bytes = b"",
    new: bool = False,
) -> bytes:
    """Write a state, durably, and return what tells this writing from all others: `turn`, if it is said.

    Raises InputError if the folder does not exist or cannot be written; if the state is `new` and there is one already.
    """
    turn = turn or new_turn()
    text = np.frombuffer(json.dumps(description).encode(), dtype=np.uint8)
    named = {_DESCRIPTION: text, _TURN: np.frombuffer(turn, dtype=np.uint8), **arrays}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **named)

    if not new:  # a link goes on leading to the state; replaced itself, it would leave an old copy where that was
        path = path.resolve()
    if not write_whole(path, write, secret=True, replace=not new):
        raise InputError(
            f"state {str(path)!r} exists already: it belongs to something else, and is never overwritten; name a new "
            "file, or go on with that one"
        )
    return turn


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]], bytes]:
    """Description, arrays and turn of a state.

    Raises
    ------
    InputError
        If there is no such file, or others than its owner can read it.
    DamagedFile
        If it is truncated or something else.
    """
    if not path.is_file():
        raise InputError(f"state {str(path)!r} does not exist: nothing can go on without the one that was written")
    if zipfile.is_zipfile(path):  # what is no state is called that, not a state that others can read
        check_secret(path, "state")
    try:
        with zipfile.ZipFile(path) as parts:
            fits_memory(sum(part.file_size for part in parts.infolist()), f"state {str(path)!r}")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        turn = arrays.pop(_TURN).tobytes()
        return json.loads(arrays.pop(_DESCRIPTION).tobytes()), arrays, turn
    except InputError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as problem:
        raise DamagedFile(
            f"state {str(path)!r} is truncated or no state: {problem}; nothing was drawn or spent"
        ) from None
