"""The output of `dledger server --help-config`: a TOML file with all options of a node and their descriptions."""

from __future__ import annotations

import textwrap

from cluster.config.broker_options import ServerOptions
from cluster.config.options import ADDRESS_HELP

_WIDTH = 98


def config_template() -> str:
    """Return a TOML file that sets every option to its default, with its description above it."""
    head = (
        "Configuration of one node. Every option may also be set by a flag (--set <option>=...), and all but broker "
        "and name_servers by the environment (DLEDGER_<OPTION>=...); a flag overrides the environment, which overrides "
        "this file. "
    )
    lines = _comment(head + ADDRESS_HELP)
    for name, field in ServerOptions.model_fields.items():
        lines += ["", *_comment(field.description or "")]
        if field.is_required():
            example = field.examples[0] if field.examples else ""
            lines.append(f"{name} = {_toml(example)}  # an example: there is no default")
        else:
            lines.append(f"{name} = {_toml(field.default)}")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]


def _toml(value: object) -> str:
    if value is None:
        return '"off"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        # Ids, or hours of the day.
        value = ";".join(f"{item:02}" if isinstance(item, int) else str(item) for item in value)
    return str(value) if isinstance(value, int | float) else f'"{value}"'
