"""Accounts within one transaction: what waits to be written is read as if it were, and parts are undone alone."""

import copy

import pytest
from hypothesis import given, settings, strategies as st

from deltahist.accounts.databases import SQLite
from deltahist.accounts.tables import Accounts

NAMES, KEYS = st.sampled_from(["a", "b"]), st.sampled_from(["k", "l", "m"])
CHANGES = st.one_of(
    st.tuples(st.just("charge"), NAMES, st.integers(0, 2), st.sampled_from([1, 5])),
    st.tuples(st.just("answer"), NAMES, KEYS, st.integers(0, 9)),
    st.tuples(st.just("forget"), NAMES, st.integers(0, 1)),
    st.tuples(st.just("store"), NAMES, KEYS, st.integers(0, 9)),
    st.tuples(st.just("reopen"), NAMES),
    st.tuples(st.just("look"), NAMES),
)
#: Changes of each part, and whether it fails.
PARTS = st.lists(st.tuples(st.lists(CHANGES, max_size=5), st.booleans()), min_size=1, max_size=6)


def seen(accounts, name):
    keys = ("k", "l", "m")
    answers = {key: accounts.find_answer(name, key) for key in keys}
    rule, requests = accounts.rule(name), sorted(accounts.requests(name))
    return [rule, accounts.charges(name), answers, requests, {key: accounts.fact(name, key) for key in keys}]


class Model:
    """The same, in memory."""

    def __init__(self):
        self.rules, self.charged, self.answers, self.facts = ({"a": {}, "b": {}} for _ in range(4))

    def seen(self, name):
        answers = {key: self.answers[name].get(key) for key in ("k", "l", "m")}
        requests = sorted(request for request, _ in self.answers[name].values())
        facts = {key: self.facts[name].get(key) for key in ("k", "l", "m")}
        return [self.rules[name], dict(sorted(self.charged[name].items())), answers, requests, facts]


def change(accounts, model, kind, name, *given):
    if kind == "charge":
        if given[1] < 5:
            assert accounts.rule(name) == model.rules[name]
            assert accounts.charges(name) == dict(sorted(model.charged[name].items()))
        accounts.charge(name, *given)
        model.charged[name][given[0]] = model.charged[name].get(given[0], 0) + given[1]
    elif kind == "answer":
        assert accounts.find_answer(name, given[0]) == model.answers[name].get(given[0])
        if given[0] not in model.answers[name]:
            accounts.keep_answer(name, given[0], given[1], "text")
            model.answers[name][given[0]] = (given[1], "text")
    elif kind == "forget":
        accounts.forget(name, *given)
        model.charged[name] = {step: nano for step, nano in model.charged[name].items() if step > given[0]}
    elif kind == "store":
        accounts.store(name, *given)
        model.facts[name][given[0]] = given[1]
    elif kind == "reopen":
        accounts.close(name)
        accounts.open(name, {"again": True})
        model.rules[name], model.charged[name], model.answers[name], model.facts[name] = {"again": True}, {}, {}, {}
    elif kind == "look":
        assert seen(accounts, name) == model.seen(name)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "city.ledger"
    SQLite(path).create()
    return SQLite(path)


@settings(max_examples=60)
@given(parts=PARTS)
def test_parts_are_seen_and_undone_as_in_memory(file, parts):
    model = Model()
    with file.begin(change=True) as connection:
        accounts = Accounts(connection)
        for name in ("a", "b"):
            accounts.close(name)
            accounts.open(name, {})
    with file.begin(change=True) as connection:
        accounts = Accounts(connection)
        for changes, fails in parts:
            accounts.begin()
            after = copy.deepcopy(model)
            for each in changes:
                change(accounts, after, *each)
            if fails:
                accounts.undo()
            else:
                model = after
        accounts.check()
    with file.begin(change=False) as connection:
        accounts = Accounts(connection)
        assert [seen(accounts, name) for name in ("a", "b")] == [model.seen(name) for name in ("a", "b")]
