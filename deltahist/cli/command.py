"""A command: help in panels, and options from a file (`--config`)."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer.core import TyperCommand

from deltahist.cli import console
from deltahist.cli.groups import KEPT
from deltahist.cli.options import option
from deltahist.errors import InputError

if TYPE_CHECKING:
    from typer import Context

#: Options that no file holds: the file itself, and what is about a single run.
_NEVER, _ONCE = ("config", "write_config", "help"), ("dry_run", "overwrite")
#: A password in a URL: between a user's name and the host, or among the settings.
_PASSWORD = re.compile(r"://[^:/@]*:[^@]+@|://.*[?&]\w*password=", re.IGNORECASE)

Config = Annotated[
    Path | None,
    option("FILE.toml", "Options from a file, such as cell = \"250m\"; the command line wins.", panel=KEPT),
]


class Command(TyperCommand):
    """A command whose options stand in panels, and may come from a file."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the usual options, and below them a section for each panel."""
        panels: dict[str, list[Any]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if each.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(each, "rich_help_panel", None) or usual, []).append(record)
        for name, records in panels.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line, with a file's options where it has none; keep all of them as they were typed."""
        typed, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        file = typed.get("config")
        if file is not None:
            ctx.default_map = _read(Path(file), self)
        ctx.meta["typed"] = (ctx.default_map or {}) | typed
        return super().parse_args(ctx, args)


def refuse_passwords(context: Context) -> None:
    """Raise InputError if an option holds a password: others may read the file that `write_options` writes."""
    for each in context.command.params:
        if _PASSWORD.search(str(context.meta["typed"].get(each.name))):
            raise InputError(
                f"--{_key(each)} holds a password, and others may read what --write-config writes: leave the password "
                "out, and keep it in PGPASSWORD or ~/.pgpass"
            )


def write_options(context: Context, file: Path) -> None:
    """Write the options of a command line as they were typed, as a file that --config reads."""
    import json

    lines = [f"# deltahist {context.info_name} INPUT --config {file}"]
    for each in context.command.params:
        value = context.meta["typed"].get(each.name)
        if value is not None and each.param_type_name == "option" and each.name not in (*_NEVER, *_ONCE):
            lines.append(f"{_key(each)} = {json.dumps(value, ensure_ascii=False)}")
    console.put("\n".join(lines), file)


def _read(file: Path, command: TyperCommand) -> dict[str, Any]:
    """Return the options of a file, as texts, by the names of their parameters."""
    import difflib
    import tomllib

    try:
        found = tomllib.loads(file.read_text(encoding="utf-8-sig"), parse_float=str)  # editors write a mark first
    except OSError as problem:
        raise InputError(f"--config {str(file)!r} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--config {str(file)!r} cannot be read: it must be text in UTF-8") from None
    except ValueError as problem:
        raise InputError(f"--config {str(file)!r} cannot be read: {problem}") from None
    known = {
        _key(each): each
        for each in command.params
        if each.param_type_name == "option" and each.name not in _NEVER
    }
    out = {}
    for key, value in found.items():
        if key not in known:
            if isinstance(value, dict):
                raise InputError(f"--config {str(file)!r} has the heading [{key}]: options must stand without one")
            if key in ("config", "write-config"):
                raise InputError(f"--config {str(file)!r} has the key {key!r}: it is for the command line only")
            (near,) = difflib.get_close_matches(key, known, n=1, cutoff=0)
            raise InputError(
                f"--config {str(file)!r} has the key {key!r}: no option of `deltahist {command.name}` is called so; is "
                f"{near!r} meant?"
            )
        parameter: Any = known[key]
        if parameter.is_flag:
            right, rule = isinstance(value, bool), "true or false"
        elif parameter.multiple:
            value = value if isinstance(value, list) else [value]
            right, rule = all(map(_is_plain, value)), "a text, or a list of texts"
        else:
            right, rule = _is_plain(value), f"a text, a number or a date, as in --{key} {parameter.metavar}"
        if not right:
            raise InputError(f"--config {str(file)!r} has {key} = {value!r}: it must be {rule}")
        if not parameter.is_flag:
            value = [_text(each) for each in value] if parameter.multiple else _text(value)
        out[str(parameter.name)] = value
    return out


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | datetime.date) and not isinstance(value, bool)


def _text(value: Any) -> str:
    """Return a value of a file as it would be typed."""
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _key(parameter: Any) -> str:
    """Return the name of an option without its dashes."""
    return str(parameter.opts[0]).lstrip("-")
