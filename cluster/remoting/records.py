"""Records of the log by their places, as this node has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.api.message_columns import records_of
from cluster.remoting.command import Rejected, RemotingCode
from store.errors import StoreError
from store.model.topics import is_closed_topic

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore


def committed_record(core: BrokerCore, physical_offset: int) -> bytes:
    """Return the record at a physical offset of the log.

    Raises:
        Rejected: SYSTEM_ERROR: this node has no committed message of a client there.
    """
    store = core.replica.store
    refused = Rejected(RemotingCode.SYSTEM_ERROR, f"there is no message at the offset {physical_offset} of the log")
    if physical_offset >= store.log.end_offset:
        raise refused
    try:
        found = store.log.find(physical_offset)
    except StoreError as error:
        raise refused from error
    # Internal records of the broker are not served to clients.
    if found is None or is_closed_topic(found.topic):
        raise refused
    return records_of((found,))
