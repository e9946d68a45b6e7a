"""Options from a project file, `deltahist.toml` in the current folder, or the one that --config names.

Above all headings stand choices that mean the same in every command; below the heading of a command, its other options.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer import Context

from deltahist.cli import console
from deltahist.errors import InputError, typed as read_number

FILE = Path("deltahist.toml")
#: Choices of a project.
SHARED = (
    "x", "y", "crs", "project", "user", "max-per-user", "time", "time-format", "where", "decimal", "table", "outside",
    "drop-bad-rows", "bounds", "cell", "cells-per-delta", "grid", "align", "sources", "delta", "limit", "epsilon",
    "rho", "strategy", "ledger", "account", "regions", "regions-crs", "squares", "boxes", "points", "start", "every",
    "window", "window-limit",
)  # fmt: skip
#: Of these, options that a command does not take from there, since they are about something else in it.
_APART: dict[str, tuple[str, ...]] = {
    "ask": ("account", "limit", "table"),  # people's own budgets
    "export": ("regions",),  # of cells; most forms have no place for regions
    "inspect": ("ledger",),  # of a folder alone, by whichever account paid
    "quantile": ("x", "bounds", "delta", "outside"),  # a line of its own
    "refine": ("epsilon", "rho", "regions", "squares", "boxes"),  # more than before, as each time is said
    "share": SHARED,  # another table
    "statement": ("ledger",),
    "stream": ("points",),  # of a step
    "tighten": ("epsilon", "rho"),
}
#: Choices of a stream, which a command takes if an option was typed that says that it is about one.
_OF_STREAM = ("every", "window", "window-limit")
_STREAMING = {"plan": "stream", "advise": "for"}
#: Values of --limit that a command takes: of moves, unless it is here.
_LIMITS = {"publish": ("moves", "account"), "quantile": ("account",), "refine": ("account",)}
#: Amounts that are spent, which are said before they are.
_SPENT = ("epsilon", "rho", "probability")
#: Options that no file holds.
_NEVER = ("config", "write-config", "dry-run", "overwrite", "replaces", "reason", "quiet", "verbose", "help")
_ASKED = ("regions", "squares", "boxes", "ranges", "box", "quantiles")
#: Choices that a typed option takes the place of, besides itself; behind "=", if that is the value.
_IN_PLACE_OF: dict[str, tuple[str, ...]] = {
    "epsilon": ("rho",),
    "rho": ("epsilon", "probability"),
    "cell": ("cells-per-delta", "grid"),
    "cells-per-delta": ("cell", "grid"),
    "grid": ("project", "cell", "cells-per-delta"),
    "project": ("grid",),
    "crs=none": ("project", "grid"),
    "user=": ("max-per-user",),
    "ledger=": ("account",),
    "points-per-user": ("points",),
    "stream": ("points",),
    "for": ("points",),
    "only=curve": ("regions",),
    "plain": ("regions",),
    "sorted": ("strategy", "outside", "drop-bad-rows", "probability"),
    **{each: tuple(other for other in _ASKED if other != each) for each in _ASKED},
}
#: What is about the plane, if --bounds are those of a line.
_PLANE = (*_ASKED, "x", "y", "crs", "project", "cell", "cells-per-delta", "grid", "align", "sources", "delta", "points")
#: A password in a URL: between a user's name, which may hold an @, and the host, or among the settings.
_PASSWORD = re.compile(r"://[^:/]*:[^@]+@|://.*[?&]\w*password=", re.IGNORECASE)


@dataclass(frozen=True)
class Project:
    """A project file: its path, its SHA-256, and its options above all headings and below them."""

    path: Path
    digest: str
    shared: Mapping[str, Any]
    headings: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, named: str | None, commands: Mapping[str, str], name: str, own: Mapping[str, Any]) -> Project | None:
        """Read the file that is named, or else deltahist.toml; None if there is none, or the name is empty.

        Messages say where options of the command that is run belong, which has a name and keys of its own.
        """
        import tomllib

        if named == "" or (named is None and not FILE.is_file()):
            return None
        path = FILE if named is None else Path(named)
        said = str(FILE) if named is None else f"--config {named!r}"
        try:
            content = path.read_bytes()
            text = content.decode("utf-8-sig")  # editors write a mark first
            found = tomllib.loads(text, parse_float=str)
        except UnicodeDecodeError:
            raise InputError(f"{said} cannot be read: it must be text in UTF-8") from None
        except OSError as problem:
            raise InputError(f"{said} cannot be read: {problem.strerror or problem}") from None
        except ValueError as problem:
            rule = 'text stands in quotes, as delta = "500m"'
            raise InputError(f"{said} cannot be read as TOML: {problem}; {rule}") from None
        headings = {key: found.pop(key) for key, value in [*found.items()] if isinstance(value, dict)}
        for key in headings.keys() - commands.keys():
            near = _near(key, commands)
            raise InputError(f"{said} has the heading [{key}]: no command is called so; is {near} meant?")
        for key in found.keys() - {*SHARED}:
            rule = f"no option is called so; is {_near(key, (*SHARED, *own))} meant?"
            if key in own:
                rule = f"it must stand below [{name}], since only choices that all commands share stand above"
            raise InputError(f"{said} has the key {key!r} above all headings: {rule}")
        for table in (found, *headings.values()):
            for key, value in table.items():
                check_password(f"{said}: {key}", value)
        for line in text.splitlines():  # comments enter the digest, too
            check_password(f"{said}: a comment", line.partition("#")[2])
        return cls(path, hashlib.sha256(content).hexdigest(), found, headings)

    def options(self, name: str, known: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the file for a command with known keys, as texts; those that were typed win."""
        own = self.headings.get(name, {})
        for key in own:
            if key not in known:
                raise InputError(
                    f"{self.path} has the key {key!r} below [{name}]: no option of `deltahist {name}` in a file is "
                    f"called so; is {_near(key, known)} meant?"
                )
        shared = {key: value for key, value in self.shared.items() if key in known and key not in _APART.get(name, ())}
        if known.get("crs") is known.get("project") and {"project", "grid"} & self.shared.keys():
            shared.pop("crs", None)  # of a map without points; that in the file is the points'
        out = {key: self._read(key, own[key], known[key]) for key in own}
        out = _without(_replaced(out), {key: self._read(key, shared[key], known[key]) for key in shared}) | out
        said = {key: typed[each.name] for key, each in known.items() if each.name in typed}
        other_unit = any(unit in said and {"epsilon", "rho"} & out.keys() - {unit} for unit in ("epsilon", "rho"))
        if "limit" in out and (limits := _other_limits(name, out.pop("limit"), said, other_unit)):
            out["limit"] = limits
            said.pop("limit", None)
        out = _without(_replaced(said), out)
        if _STREAMING.get(name, "") not in {"", *said}:
            out = _without({*_OF_STREAM}, out)
        # What is about the file's regions goes with them.
        if "regions" not in out and ("regions" in {*self.shared, *own} or "regions" not in said):
            out = _without({"regions-crs", *(("name", "layer") if "name" in known else ())}, out)
        return out

    def _read(self, key: str, value: Any, parameter: Any) -> Any:
        """Return a value as it would be typed, checked for its type; paths are relative to the file."""
        flag, several = (getattr(parameter, name, False) for name in ("is_flag", "multiple"))
        values = value if isinstance(value, list) and several else [value]
        plain = bool if flag else str | int | datetime.date
        if not all(isinstance(each, plain) and isinstance(each, bool) == flag for each in values):
            rule = f"a text, a number or a date, as in --{key} {parameter.metavar}"
            rule = "true or false" if flag else rule + ", or a list of them" * several
            raise InputError(f"{self.path} has {key} = {value!r}: it must be {rule}")
        if flag:
            return value
        texts = [each.isoformat() if isinstance(each, datetime.date) else str(each) for each in values]
        texts = [str(self.path.parent / each) if _is_path(parameter, each) else each for each in texts]
        return texts if several else texts[0]


def check_password(said: str, value: Any) -> None:
    """Raise InputError if a value for a project file holds a password."""
    if _PASSWORD.search(str(value)):
        raise InputError(
            f"{said} holds a password, and releases name the file by its digest, by which it can be guessed: leave the "
            "password out, and keep it in PGPASSWORD or ~/.pgpass"
        )


def find_keys(name: str, parameters: list[Any]) -> dict[str, Any]:
    """Return the parameters of a command that a file may hold, by their keys; a ledger has other names, too."""
    keys = {opt[2:]: each for each in parameters for opt in each.opts if opt.startswith("--")}
    for each in parameters:
        if each.metavar == "LEDGER" or (name, each.name) == ("stream", "state"):
            keys["ledger"] = each
    return {key: each for key, each in keys.items() if key not in _NEVER}


def _other_limits(name: str, given: Any, said: Mapping[str, Any], other_unit: bool) -> list[str]:
    """Return a file's limits of moves, or of an account, for a command; none of a kind that was typed."""
    kinds = set(_LIMITS.get(name, ("moves",))) - {_kind(each) for each in said.get("limit", ())}
    kinds -= {"moves"} if _is_line(said) else set()
    kinds -= {"account"} if said.get("ledger") == "" or other_unit else set()  # ε and ρ are not alike
    return [each for each in ([given] if isinstance(given, str) else given) if _kind(each) in kinds]


def _is_line(options: Mapping[str, Any]) -> bool:
    """Return whether --bounds are the ends of a line."""
    return str(options.get("bounds", "")).count(",") == 1


def _kind(limit: str) -> str:
    return "moves" if read_number(limit) is None else "account"


def _near(key: str, known: Any) -> str:
    import difflib

    (near,) = difflib.get_close_matches(key, known, n=1, cutoff=0)
    return repr(near)


def _is_path(parameter: Any, text: str) -> bool:
    """Return whether a value of an option is a path: of a file, a folder, or of geometries where people may appear."""
    word = "://" in text or text in ("", "none", "boundary", "left", "right")
    return str(parameter.metavar).startswith(("FILE", "DIR", "WHERE", "LEDGER")) and not word


def _replaced(options: Mapping[str, Any]) -> set[str]:
    """Return the keys that options take the place of, their own among them."""
    found = {*options}
    for key, value in options.items():
        found |= {*_IN_PLACE_OF.get(key, ()), *_IN_PLACE_OF.get(f"{key}={value}", ())}
    return found | {*_PLANE} if _is_line(options) else found


def _without(keys: set[str], options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in keys}


# --- a command's options, and a file that is written of them -------------------------------------------------


def fill_in(context: Context, typed: Mapping[str, Any], commands: Mapping[str, str]) -> dict[str, Any]:
    """Return options of the file for a command, by parameter, and say which they are; keep them beside those typed.

    An option that is typed with an empty value is not given, whatever the file says.
    """
    command = context.command
    config = next((each for each in command.params if each.name == "config"), None)
    context.meta.update(typed=dict(typed), filled={})
    if config is None or typed.get("help"):
        return {}
    name, named = str(command.name), typed.get("config", config.resolve_envvar_value(context))
    known = find_keys(name, command.params)
    project = Project.read(named, commands, name, known)
    if project is None:
        return {}
    taken = project.options(name, known, typed)
    filled = {known[key].name: value for key, value in taken.items()}
    if "limit" in filled:
        filled["limit"] += typed.get("limit", ())
    context.meta.update(typed=dict(typed) | filled, filled=filled)
    if taken:
        context.meta["project_file"] = project.digest
        shown = typed.get("dry_run") or console.TELLING.verbose
        each = (f"{key} = {_show(value)}" if shown or key in _SPENT else key for key, value in taken.items())
        console.note(f"from {project.path}: {', '.join(each)}")
    return {"config": str(project.path)} | filled


def _show(value: Any) -> str:
    return " and ".join(value) if isinstance(value, list) else str(value).lower() if value is True else str(value)


def refuse_passwords(context: Context) -> None:
    """Raise InputError if an option holds a password: others may read the file that `write_options` writes."""
    for key, each in find_keys(str(context.command.name), context.command.params).items():
        # Arguments are not written.
        if each.param_type_name == "option" and _PASSWORD.search(str(context.meta["typed"].get(each.name))):
            raise InputError(
                f"--{key} holds a password, and others may read what --write-config writes: leave the password "
                "out, and keep it in PGPASSWORD or ~/.pgpass"
            )


def write_options(context: Context, file: Path) -> None:
    """Write the options of a command line as they were typed, as a project file."""
    name, typed = str(context.command.name), context.meta["typed"]
    above, below = [f"# deltahist {name} INPUT" + f" --config {file}" * (file != FILE)], [f"\n[{name}]"]
    for key, each in find_keys(name, context.command.params).items():
        value = typed.get(each.name)
        if value in (None, "") or each.param_type_name != "option" or key != each.opts[0][2:]:
            continue
        if _is_path(each, str(value)) and file.parent != FILE.parent:
            value = os.path.relpath(value, file.parent)
        shared = key in SHARED and key not in _APART.get(name, ())
        (above if shared else below).append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    console.put("\n".join([*above, *(below if len(below) > 1 else ())]), file)
