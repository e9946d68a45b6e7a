"""Columns of numbers as bytes: what is packed comes back, and nothing else is taken."""

import numpy as np
import pytest

from deltahist.budgets.packing import pack, unpack

KINDS = ("int64", "uint8 uint16")


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("length", [0, 1, 3, 1_000])
def test_columns_come_back(length, compress):
    columns = np.arange(length) - 5, np.arange(length, dtype=np.uint16)
    again = unpack(pack(*columns, compress=compress), KINDS)
    assert [c.dtype for c in again] == [np.int64, np.uint16]
    assert all((a == b).all() for a, b in zip(again, columns, strict=True))
    assert not any(c.flags.writeable for c in again)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not say"),
        (b"[]\n", "does not say"),
        (b'{"plain": 3}\n', "does not say"),
        (b'{"plain": [], "zlib": []}\n', "does not say"),
        (b'{"other": [["int64", 1]]}\n12345678', "does not know"),
        (b'{"plain": [["float64", 1]]}\n12345678', "does not know"),
        (b'{"plain": [["int64", -1]]}\n', "does not know"),
        (b'{"plain": [["int64", 0], ["uint8", 0], ["uint8", 0]]}\n', "does not know"),
        (b'{"plain": []}\n', "does not know"),
        (b'{"plain": [["int64", 2]]}\n12345678', "8 bytes instead of 16"),
        (b'{"zlib": [["int64", 1]]}\nno such', "7 bytes instead of 8"),
    ],
)
def test_other_bytes_are_refused(data, why):
    with pytest.raises(ValueError, match=why):
        unpack(data, KINDS, optional=1)


def test_what_swells_is_not_swollen():
    honest = pack(np.zeros(1_000_000, dtype=np.int64), compress=True)
    with pytest.raises(ValueError, match="81 bytes instead of 80"):
        unpack(honest.replace(b"1000000", b"10"), KINDS[:1])
