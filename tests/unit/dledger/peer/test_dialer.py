"""The dialer of one peer: whatever is wrong with an address, it logs that and keeps trying."""

import asyncio

import pytest

from dledger.config import Address
from dledger.peer.dialer import Dialer
from tests.support.waiting import PATIENCE_S


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "h\0st"])
def test_unresolvable_address_is_logged_and_retried(host):
    """Such a name fails before the network is used, with an error that is not an OSError."""

    async def main():
        failures, again = [], asyncio.Event()

        def failed(error):
            failures.append(str(error))
            if len(failures) == 2:
                again.set()

        dialler = asyncio.create_task(Dialer(Address(host, 7), _never, failed, seed=1).run())
        waiting = asyncio.create_task(again.wait())
        await asyncio.wait([dialler, waiting], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        assert not dialler.done(), dialler
        dialler.cancel()
        waiting.cancel()
        assert len(failures) == 2
        assert failures[0].startswith(f"cannot connect to {host}:7: ")

    asyncio.run(main())


def _never():
    raise AssertionError("connected")
