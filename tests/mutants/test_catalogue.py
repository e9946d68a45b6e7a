"""The catalogue of planted bugs fits the code: each stands somewhere, once, and is named for what is wrong."""

import ast
from pathlib import Path

import pytest

import deltahist as dh
from tests.mutants.catalogue import MUTANTS

PACKAGE, TESTS = Path(dh.__file__).parent, Path(__file__).parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.file}: {m.name}")
def test_a_mutant_changes_one_passage_and_can_be_run(mutant):
    source = (PACKAGE / mutant.file).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1
    changed = ast.dump(ast.parse(source.replace(mutant.old, mutant.new)))
    assert changed != ast.dump(ast.parse(source))
    assert mutant.tests
    assert all((TESTS / test).exists() for test in mutant.tests)


def test_there_are_plenty_and_no_two_are_the_same():
    assert len(MUTANTS) >= 60
    assert len({(m.file, m.name) for m in MUTANTS}) == len(MUTANTS)
    assert len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert all(len(m.harmless.split()) > 5 for m in MUTANTS if m.harmless)
