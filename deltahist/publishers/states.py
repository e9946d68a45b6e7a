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

from deltahist._files import write_whole
from deltahist.errors import DamagedFile, InputError, fits_memory

#: Name of the description among the arrays, and of what changes with every writing.
_DESCRIPTION, _TURN = "description", "turn"


def write_state(path: Path, description: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Write a state, and return what tells this writing from all others.

    Raises InputError if the folder does not exist or cannot be written.
    """
    turn = os.urandom(16)
    text = np.frombuffer(json.dumps(description).encode(), dtype=np.uint8)
    named = {_DESCRIPTION: text, _TURN: np.frombuffer(turn, dtype=np.uint8), **arrays}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **named)

    write_whole(path, write, secret=True)
    return turn


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]], bytes]:
    """Description, arrays and turn of a state.

    Raises
    ------
    InputError
        If there is no such file.
    DamagedFile
        If it is truncated or something else.
    """
    if not path.is_file():
        raise InputError(f"state {str(path)!r} does not exist")
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
        raise DamagedFile(f"state {str(path)!r} is truncated or no state: {problem}") from None
