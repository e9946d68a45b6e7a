"""Random words: fresh for every draw, the cipher's own key stream, predictable only on request."""

import hmac
import os
import struct
import warnings

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import deltahist as dh
from deltahist.noise import discrete_gaussian, discrete_laplace, exact
from deltahist.noise.exact import KeyStream, Seeded, source
from deltahist.noise.reals import Keyed


def in_a_child(task):
    """What `task` returns (bytes) in a forked process."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads; this child draws, writes and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.write(write, task())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        out = pipe.read()
    os.waitpid(child, 0)
    return out


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks only")
@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_forked_processes_draw_different_noise(draw):
    # Tables are made and a stream is used before the fork; equal noise by chance: less than 2^-60.
    draw(1e6, 4)
    one, two = (in_a_child(lambda: draw(1e6, 4).tobytes()) for _ in range(2))
    assert len(one) == len(two) == 32
    assert len({one, two, draw(1e6, 4).tobytes()}) == 3


@pytest.mark.parametrize("number", [0, 1, 7, 8192, 8193, 20_001])
def test_a_stream_is_the_ciphers_key_stream(monkeypatch, number):
    # Pieces of any size continue each other, whatever the size of the blocks that are enciphered.
    monkeypatch.setattr(exact.os, "urandom", lambda size: bytes(range(size)))
    cipher = Cipher(algorithms.AES(bytes(range(32))), modes.CTR(bytes(range(16)))).encryptor()
    expected = np.frombuffer(cipher.update(bytes(8 * (number + 3))), dtype=np.uint64)
    stream = KeyStream()
    words = np.concatenate([stream.words(number), stream.words(3)])
    assert words.dtype == np.uint64
    assert np.array_equal(words, expected)


def test_every_stream_asks_for_a_key_of_its_own(monkeypatch):
    asked = []
    system = os.urandom
    monkeypatch.setattr(exact.os, "urandom", lambda size: asked.append(size) or system(size))
    for draws in range(1, 4):
        discrete_laplace(2.0, 5)
        assert asked == [32, 16] * draws


def test_a_generator_gives_its_own_words():
    words = source(np.random.default_rng(1)).words(5)
    assert np.array_equal(words, Seeded(np.random.default_rng(1)).words(5))
    assert np.array_equal(words, np.random.default_rng(1).integers(0, 2**64, 5, dtype=np.uint64))
    assert isinstance(source(None), KeyStream)


@pytest.mark.parametrize("bad", [0, 7, "os", np.random.RandomState(1), np.random.PCG64(1), np.random])
@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_other_sources_are_refused(draw, bad):
    with pytest.raises(dh.InputError, match=r"rng is .* must be None .* or a numpy\.random\.Generator"):
        draw(1.0, 3, rng=bad)


@pytest.mark.parametrize("scale", [0.5, 4, 1e3])
def test_the_global_generator_is_neither_used_nor_moved(monkeypatch, scale):
    def refuse(*args, **kwargs):
        raise AssertionError("global randomness was used")

    for name in ("random", "rand", "randint", "bytes", "normal", "laplace", "default_rng", "random_sample"):
        monkeypatch.setattr(np.random, name, refuse)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    discrete_laplace(scale, 100)
    discrete_gaussian(scale, 100)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def keyed(key=bytes(32), label="test", purpose=0, users=(5,), first=0, number=6, planes=1):
    return Keyed(key, label).words(purpose, np.array(users), first=first, number=number, planes=planes)


def test_keyed_words_are_a_function_of_the_key_and_their_place():
    words = keyed(users=(5, 6), number=7, planes=2)
    assert words.shape == (2, 7, 2)
    assert (keyed(number=3, first=2)[0, :, 0] == words[0, 2:5, 0]).all()
    assert (keyed(users=(6,), number=7, planes=2)[0] == words[1]).all()
    # Whatever is another, the words are: equal ones by chance less than 2^-50.
    others = [
        *words.ravel(), *keyed(purpose=1).ravel(), *keyed(key=bytes(31) + b"1").ravel(), *keyed(label="tests").ravel(),
        *keyed(first=8).ravel(), *keyed(users=(5 + 2**32,)).ravel(),
    ]  # fmt: skip
    assert len(set(others)) == len(others)


def test_keyed_words_are_the_ciphers_blocks():
    """Under HMAC-SHA-256 of the label; user, purpose, plane and pair of words, little end first."""
    key = hmac.digest(bytes(32), b"test", "sha256")
    block = struct.pack("<QHHI", 7, 3, 1, 2)
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    expected = struct.unpack("<QQ", cipher.update(block))
    assert tuple(keyed(purpose=3, users=(7,), first=4, number=2, planes=2)[0, :, 1]) == expected
