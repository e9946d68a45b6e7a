"""The catalogue of planted bugs fits the code: each stands at its anchor, once, and is named for what is wrong."""

import ast
import functools
import textwrap
from pathlib import Path

import deltahist as dh
from tests.mutants.catalogue import MUTANTS, Mutant, passage, planted

PACKAGE, TESTS = Path(dh.__file__).parent, Path(__file__).parent.parent


@functools.cache
def tree(source):
    return ast.dump(ast.parse(textwrap.dedent(source)))


def wrong(mutant):
    """Return what is wrong with a mutant, or None."""
    try:
        _, _, there, changed, _ = passage(mutant, PACKAGE)
        if tree(changed) == tree(there):
            return "it changes nothing"
    except (LookupError, SyntaxError) as problem:
        return str(problem)
    there = [(TESTS / test.partition("::")[0]).exists() for test in mutant.tests]
    return None if there and all(there) else "a test is not there"


def test_a_mutant_changes_one_passage_and_can_be_run():
    assert {f"{m.topic}: {m.name}": found for m in MUTANTS if (found := wrong(m)) is not None} == {}


def test_there_are_plenty_and_no_two_are_the_same():
    assert 60 <= len(MUTANTS) <= 160
    assert len({(m.topic, m.name) for m in MUTANTS}) == len(MUTANTS)
    assert len({(m.at, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert all(len(m.harmless.split()) > 5 for m in MUTANTS if m.harmless)


def test_a_passage_may_move_and_be_laid_out_anew(tmp_path):
    body = "        return max(\n            1,\n            2\n        )\n"
    (tmp_path / "moved.py").write_text(f"class Box:\n    def side(self):\n{body}")
    mutant = Mutant("box.py", "sides", "Box.side", "max(1, 2)", "min(1, 2)", ())
    file, changed = planted(mutant, tmp_path)
    assert (file.name, changed) == ("moved.py", "class Box:\n    def side(self):\n        return min(1, 2)\n")
