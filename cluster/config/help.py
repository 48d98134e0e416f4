"""Explains every option of a node, as a TOML file to start from: what `dledger server --help-config` prints."""

from __future__ import annotations

import textwrap

from cluster.config.broker_options import ServerOptions
from cluster.config.options import ADDRESS_HELP

_WIDTH = 98


def config_template() -> str:
    """Return a TOML file that sets every option to its default, each with its meaning above it."""
    head = (
        "Configuration of one node. Every option may also be set by a flag (--set <option>=...), and all but broker "
        "and name_servers by the environment (DLEDGER_<OPTION>=...); a flag wins over the environment, which wins "
        "over this file. "
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
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        # Ids, or hours of the day.
        value = ";".join(f"{item:02}" if isinstance(item, int) else str(item) for item in value)
    return str(value) if isinstance(value, int | float) else f'"{value}"'
