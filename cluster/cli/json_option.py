"""`--json` for commands with `--format`: the same as `--format jsonl`, so that all commands that list have `--json`."""

from __future__ import annotations

from copy import copy
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

_FORMAT: Final = "--format"


def add_json_option(command: Any) -> Any:
    """Add the option `--json` to a command whose `--format` may be jsonl, or to those of a group; return it.

    Args:
        command: a `TyperCommand` or a `TyperGroup`.
    """
    if (of_group := getattr(command, "commands", None)) is not None:
        for each in of_group.values():
            add_json_option(each)
    elif _is_needed(command):
        command.params.append(copy(_option()))
    return command


def _is_needed(command: Any) -> bool:
    has_json = any("--json" in each.opts for each in command.params)
    formats = [type(each.default) for each in command.params if _FORMAT in each.opts]
    return bool(formats) and issubclass(formats[0], StrEnum) and "jsonl" in list(formats[0]) and not has_json


def _use(context: typer.Context, is_wanted: bool) -> None:
    """Change the default of `--format`, which is read after the options that are given."""
    if is_wanted:
        name = next(each.name for each in context.command.params if _FORMAT in each.opts)
        context.default_map = {**(context.default_map or {}), str(name): "jsonl"}


@cache
def _option() -> Any:
    holder = typer.Typer(add_completion=False)

    @holder.command()
    def _command(
        *,
        _json: Annotated[
            bool, typer.Option("--json", callback=_use, help="The same as --format jsonl, unless --format is given.")
        ] = False,
    ) -> None:
        """Do nothing: only the parameter of this function is used."""

    option = get_command(holder).params[0]
    option.expose_value = False
    return option
