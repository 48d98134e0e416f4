"""The option `--quota` of `dledger topic` and `dledger group`, and how quotas are shown.

Not here: what they mean (`cluster.protocol.flow_attributes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.common import EXIT_USAGE, fail

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

Quotas = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        metavar="NAME=RATE",
        help="A bound for each second: put.messages, put.bytes (topics), get.messages, get.bytes; off: none. "
        "May be repeated.",
    ),
]


def rates_of_options(texts: list[str] | None, names: tuple[str, ...]) -> dict[str, str]:
    """Return the rates by name of the attribute; an empty rate removes a quota.

    Ends the program if one is not valid.

    Args:
        texts: values of the option.
        names: the possible attributes.
    """
    from cluster.protocol.flow_attributes import QUOTA_PREFIX, check_quotas
    from store.errors import IllegalMessage

    found = {}
    for text in texts or ():
        name, _, rate = text.partition("=")
        attribute = QUOTA_PREFIX + name
        if attribute not in names:
            shown = ", ".join(each.removeprefix(QUOTA_PREFIX) for each in names)
            fail(f"--quota {text}: expected NAME=RATE with a name of {shown}", EXIT_USAGE)
        found[attribute] = "" if rate == "off" else rate
        try:
            check_quotas(((attribute, rate),) if rate != "off" else (), names)
        except IllegalMessage as error:
            fail(f"--quota {text}: {error}", EXIT_USAGE)
    return found


def set_rates(attributes: MutableMapping[str, str], rates: Mapping[str, str]) -> None:
    """Change the quotas among the attributes of a topic or group; others are unchanged."""
    for name, rate in rates.items():
        if rate:
            attributes[name] = rate
        else:
            attributes.pop(name, None)


def shown_quotas(attributes: Mapping[str, str]) -> list[str]:
    """Return the quotas among attributes as the option has them, in order."""
    from cluster.protocol.flow_attributes import QUOTA_PREFIX

    quotas = sorted((name, rate) for name, rate in attributes.items() if name.startswith(QUOTA_PREFIX))
    return [f"{name.removeprefix(QUOTA_PREFIX)}={rate}" for name, rate in quotas]
