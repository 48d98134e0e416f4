"""Default ports are below the range from which Linux assigns ports of outgoing connections."""

import re
from pathlib import Path

import pytest

from cluster.cli.common import DEFAULT_ENDPOINTS
from cluster.cli.message_common import DEFAULT_BROKER
from cluster.cli.messages.brokers import _DEFAULT as NAME_SERVER
from cluster.config.options import NodeOptions

ROOT = Path(__file__).parents[4]
DOCUMENTS = ["README.md", *sorted(str(each.relative_to(ROOT)) for each in (ROOT / "docs").rglob("*.md"))]
# Programs for clients have examples in their docstrings.
CLIENTS = sorted(
    str(each.relative_to(ROOT))
    for folder in ("cluster/client", "cluster/cli", "dledger/client")
    for each in (ROOT / folder).rglob("*.py")
)
# net.ipv4.ip_local_port_range of an ordinary Linux: a dialling process may hold any of these when a node starts.
EPHEMERAL = range(32_768, 61_000)


def test_no_default_port_is_one_that_an_outgoing_connection_may_hold() -> None:
    defaults = [NodeOptions.model_fields[name].default.port for name in ("client_address", "metrics_address")]
    defaults += [int(each.rpartition(":")[2]) for each in (DEFAULT_ENDPOINTS, DEFAULT_BROKER, NAME_SERVER)]

    assert [] == [port for port in defaults if port in EPHEMERAL or port < 1024]
    assert f"127.0.0.1:{defaults[0]}" == DEFAULT_ENDPOINTS


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_document_shows_such_a_port(document: str) -> None:
    shown = [int(port) for port in re.findall(r"\d\.\d+:(\d{4,5})\b", (ROOT / document).read_text())]

    assert [] == [port for port in shown if port in EPHEMERAL]


@pytest.mark.parametrize("document", [*DOCUMENTS, *CLIENTS])
def test_no_document_sends_a_client_to_the_port_of_peers(document: str) -> None:
    """Peers of the examples listen on 20911 and so on: each such address follows a node's id (`n0-...`)."""
    lines = [line for line in (ROOT / document).read_text().splitlines() if "admin.add(" not in line]
    shown = re.findall(r"(\S*?)(?:\d+\.){3}\d+:2091\d\b", "\n".join(lines))

    assert [] == [before for before in shown if not re.search(r"n\d-$", before)]
