"""What databases have in common: names in SQL, tables bound to none, and failures that say nothing of records.

What a database says when it fails on private rows may quote them. It is never shown: there is one fixed text for each
kind of failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from deltahist.errors import InputError

#: Ibis makes its compilers when they are first asked for, which is not for two threads at once.
_COMPILING = threading.Lock()


@contextmanager
def unspoken(name: str, gone: tuple[type[Exception], ...]) -> Iterator[None]:
    """Failures in the block as InputError that say nothing of what the database said; `gone` are those of a loss."""
    try:
        yield
    except InputError:
        raise
    except gone:
        text = "went away, or ran out of room, while records were read: nothing was answered; try again when it is back"
    except Exception:
        text = (
            "cannot evaluate this: was a table or a column changed meanwhile? What it says is not shown, since it may "
            "quote records"
        )
    else:
        return
    raise_alone(InputError(f"the database {name} {text}"))


def raise_alone(failed: Exception) -> NoReturn:
    """Raise an error that does not drag along the one that a `with` is left by, which may quote records."""
    try:
        raise failed
    finally:
        failed.__context__ = None


def quoted(name: str) -> str:
    """A name in SQL, whatever it holds; "part.table" is a table in a part of the database."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split(".", 1))


def unbound(name: str, schema: Any) -> Any:
    """A table that is bound to no database, as an Ibis expression."""
    import ibis

    *within, own = name.split(".", 1)
    return ibis.table(schema, name=own, database=within[0] if within else None)


def sql_of(
    expression: Any, dialect: str, text: Callable[[str], str] | None = None, *, pretty: bool = False
) -> str:
    """An expression of unbound tables as SQL; `text` writes its text constants, if a database has its own way."""
    from ibis.backends.sql import compilers
    from sqlglot import exp

    def written(node: Any) -> Any:
        is_text = text is not None and isinstance(node, exp.Literal) and node.is_string
        return exp.Var(this=text(node.this)) if is_text else node  # type: ignore[misc]

    with _COMPILING:
        compiler = getattr(compilers, dialect).compiler
        tree = compiler.to_sqlglot(expression.unbind())
        return str(tree.transform(written).sql(dialect=compiler.dialect, pretty=pretty))


def carried(expression: Any) -> dict[str, Any]:
    """Public tables that an expression carries with it, as Arrow tables by name."""
    import ibis.expr.operations as ops

    found = expression.op().find(ops.InMemoryTable)
    return {op.name: op.data.to_pyarrow(op.schema) for op in found}
