"""The valid values of `Plain` and `Tls`; no key is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dledger.client.aio.host import secured_host
from dledger.client.blocking.nodes import GroupConnections
from dledger.security.settings import PLAIN, Tls

if TYPE_CHECKING:
    from dledger.security.settings import Security


def test_key_is_not_in_the_text_of_tls() -> None:
    assert "secret" not in repr(Tls(b"authority", b"certificate", b"secret"))


@pytest.mark.parametrize(
    ("fault", "settings"),
    [
        ("no key", {"certificate": b"c"}),
        ("no certificate", {"key": b"k"}),
        ("needs the authority", {"certificate": b"c", "key": b"k", "is_certificate_required": True}),
    ],
)
def test_incomplete_tls_is_refused(fault: str, settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=fault):
        Tls(**settings)


@pytest.mark.parametrize(("security", "timeout_s"), [(PLAIN, 0.5), (Tls(b"authority"), 2.0)])
def test_search_for_a_leader_gives_handshakes_of_tls_more_time(security: Security, timeout_s: float) -> None:
    assert GroupConnections("127.0.0.1:1", "g", security).status_timeout_s == timeout_s
    assert secured_host(security).status_timeout_s == timeout_s
