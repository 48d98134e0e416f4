"""What `Plain` and `Tls` may hold, and that no key is printed."""

from __future__ import annotations

import pytest

from dledger.security.settings import Tls


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
