"""counting/inputs.py: brackets that stand open at once, whatever stands in strings and wherever the text is cut."""

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import deltahist as dh
from deltahist.counting.inputs import DEEPEST, ShallowJson


def refused(text, size):
    stream = ShallowJson(io.BytesIO(text), "p")
    while stream.read(size):
        pass
    try:
        stream.check()
    except dh.InputError:
        assert stream.read(size) == b""  # it has ended for good
        return True
    return False


def deepest(text):
    """The same by the definition, one byte after the other."""
    depth = most = 0
    in_string = escaped = False
    for byte in text.decode():
        if in_string:
            in_string = escaped or byte != '"'
            escaped = byte == "\\" and not escaped
        elif byte in '"[{]}':
            in_string = byte == '"'
            depth += (byte in "[{") - (byte in "]}")
            most = max(most, depth)
    return most


def test_depth_is_that_of_the_definition():
    chance = random.Random(1)
    seen = set()
    for _ in range(400):
        inner = "".join(
            chance.choice(('"', "\\", "]", "[[", "a", "{}", "}", '""')) for _ in range(chance.randrange(60))
        )
        depth = DEEPEST + chance.choice((-2, -1, 0, 1))
        text = '{"s":' + json.dumps(inner) + ',"d":' + "[" * depth + "]" * depth + "}"
        text = (text + "\n" + text).encode()
        expected = deepest(text) > DEEPEST
        seen.add(expected)
        assert refused(text, chance.choice((1, 2, 7, 64, 1 << 20))) is expected
    assert seen == {True, False}


def test_no_thread_of_the_parser_is_surprised():
    """An error in it would end the process in one of thirty runs."""
    stream = ShallowJson(io.BytesIO(b"[" * (DEEPEST + 1) + b"]" * 999), "p")
    assert [stream.read(DEEPEST + 1), stream.read(99)] == [b"", b""]
    with pytest.raises(dh.InputError, match="brackets within one another"):
        stream.check()


def test_a_text_that_is_nested_too_deeply_ends_in_one_line(tmp_path):
    """In a process of its own, which a parser that follows the brackets would end."""
    row = b'{"x": 1, "y": 2}\n'
    deep = b'{"x": 1, "y": 2, "z": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    (tmp_path / "begin.jsonl").write_bytes(deep)
    (tmp_path / "later.jsonl").write_bytes(row * 120_000 + deep)
    program = (
        "import sys, deltahist as dh\n"
        "for path in sys.argv[1:]:\n"
        "    try: dh.count_file(path, dh.Domain((0, 0, 9, 9), (9, 9)), x='x', y='y')\n"
        "    except dh.InputError as problem: print(problem)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "begin.jsonl", tmp_path / "later.jsonl"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(Path(dh.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("has more than 100 brackets within one another") == 2


@pytest.mark.parametrize("name", ["p.jsonl", "p.json"])
def test_a_name_that_is_no_text_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b'{"x": 1, "y": 2, "\xff\xfe": 3}\n')
    with pytest.raises(dh.InputError, match="cannot be read"):
        dh.count_file(tmp_path / name, dh.Domain((0, 0, 9, 9), (9, 9)), x="x", y="y", format="jsonl")
