"""Both forms of what `dledger.native` has: in C, and in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dledger import native

if TYPE_CHECKING:
    from collections.abc import Callable

NATIVE, WHY_NOT = native.load()
needs_native = pytest.mark.skipif(NATIVE is None, reason=f"kernels: {WHY_NOT}; `make setup` builds them")
FORMS = [pytest.param(False, id="python"), pytest.param(True, id="native", marks=needs_native)]


@pytest.fixture(params=FORMS)
def both_forms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test in each form."""
    monkeypatch.setattr(native, "kernels", NATIVE if request.param else None)


def outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return the result of a function, or type and text of its error."""
    try:
        return function(*arguments, **named)
    except Exception as error:  # noqa: BLE001 - any error is compared
        return type(error), str(error)


def assert_same(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Assert that both forms of `function` have one outcome, and return it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "kernels", None)
        expected = outcome(function, *arguments, **named)
        patch.setattr(native, "kernels", NATIVE)
        assert outcome(function, *arguments, **named) == expected
    return expected
