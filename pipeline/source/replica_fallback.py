"""Finds alternative sources for a task's part: another replica's directory, another node of the broker.

A replica can be used if it belongs to the same log (`pipeline.log.marks`) and its committed range covers the part. A
directory is on the task's host if its name contains that host (`host:/directory`), or if it exists there.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.common.errors import PipelineError
from pipeline.log.marks import Mark, is_same_log
from pipeline.log.places import NO_INDEX
from pipeline.log.selection import Selection
from pipeline.log.slice import NO_LIMIT, Slice
from pipeline.log.slices import plan
from pipeline.log.stores import Tail, open_store
from pipeline.source.broker_range import BrokerRange
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.log.store_view import StoreView

_log = logging.getLogger(__name__)

PartRange = Slice | BrokerRange
# Environment variables with the host name of a Spark process.
_HOST_VARIABLES: Final = ("SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_IP")


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas in a query's options. Sent to its tasks.

    Attributes:
        paths: of all replicas, from the option `path`; with only one there is no choice.
        local_paths: replicas to read before all others: `directory`, or `host:directory`.
        is_nearest_first: of a broker's nodes, call the one on the task's host first.
    """

    paths: tuple[str, ...] = ()
    local_paths: tuple[str, ...] = ()
    is_nearest_first: bool = False

    @property
    def is_choice(self) -> bool:
        """Whether there is more than one replica to read from."""
        return len(self.paths) > 1 or bool(self.local_paths)


NO_CHOICE: Final = Replicas()


class ReadCandidate(NamedTuple):
    """One source of a part.

    Attributes:
        name: for log messages.
        find: returns the places that together make up the part; None if this replica cannot be used.
        is_spare: read only in place of damaged data.
    """

    name: str
    find: Callable[[], list[PartRange] | None]
    is_spare: bool = False


def candidates(place: PartRange, marks: Sequence[Mark], replicas: Replicas) -> list[ReadCandidate]:
    """Return the candidates for a part in order of preference: own host, planned place, other replicas."""
    hosts = own_hosts()

    def in_directory(path: str) -> ReadCandidate:
        return ReadCandidate(path, lambda: _find(path, place, marks))

    local = list(dict.fromkeys(filter(None, (_own_path(each, hosts) for each in replicas.local_paths))))
    found = [in_directory(path) for path in local]
    if isinstance(place, Slice):
        found.append(ReadCandidate(place.path, lambda: [place]))
        found += [in_directory(path) for path in replicas.paths if path not in local]
        return found
    addresses = place.endpoints.split(",")
    if replicas.is_nearest_first:
        addresses.sort(key=lambda address: address.rpartition(":")[0].strip("[]") not in hosts)
    every = place._replace(endpoints=",".join(addresses))
    found.append(ReadCandidate(f"broker {every.endpoints}", lambda: [every]))
    return [*found, *(_of_node(place, address) for address in addresses if len(addresses) > 1)]


def own_hosts() -> set[str]:
    """Return the names and addresses of this host."""
    name = socket.gethostname()
    hosts = (os.environ.get(variable) for variable in _HOST_VARIABLES)
    return {name, name.partition(".")[0], "localhost", *filter(None, hosts)}


def split_host(text: str) -> tuple[str, str]:
    """Return the host and the directory of `host:directory`; the host is empty if there is none."""
    host, colon, path = text.partition(":")
    return (host, path) if host and colon and "/" not in host else ("", text)


def _own_path(text: str, hosts: set[str]) -> str | None:
    """Return the directory if it is for this host; None: it is for another host."""
    host, path = split_host(text)
    return path if not host or host in hosts else None


def _of_node(place: BrokerRange, address: str) -> ReadCandidate:
    return ReadCandidate(f"node {address}", lambda: [place._replace(endpoints=address)], is_spare=True)


def _find(path: str, place: PartRange, marks: Sequence[Mark]) -> list[PartRange] | None:
    """Return the place of a part in the store at a directory."""
    try:
        with open_store(path, tail=Tail.COMMITTED) as store:
            if not is_same_log(store, marks):
                _log.debug("%s: not known to be a replica of the log that is read", path)
                return None
            return place_in(store, place)
    except PipelineError as error:
        _log.debug("%s: no replica to read from: %s", path, error)
        return None


def place_in(store: StoreView, place: PartRange) -> list[PartRange] | None:
    """Return the place of a part in another replica; None if a part of it is missing or not committed there."""
    if place.topic:
        begin, end = (
            (place.begin_queue_offset, place.end_queue_offset) if isinstance(place, Slice) else (place.begin, place.end)
        )
        return _queue_in(store, QueueKey(place.topic, place.queue_id), begin, end)
    if not (store.begin_offset <= place.begin and place.end <= store.end_offset):
        return None
    if isinstance(place, BrokerRange):
        slices = plan(store, Selection(offset_range=(place.begin, place.end)))
        # A range begins and ends with a record.
        slices[:1] = [part._replace(is_begin_known=True) for part in slices[:1]]
        slices[-1:] = [part._replace(is_end_known=True) for part in slices[-1:]]
        return list(slices)
    for file in store.files:
        if file.begin_offset <= place.begin < file.end_offset:
            is_alike = file.header_size == place.header_size and place.end <= file.end_offset
            limit = min(store.end_offset, file.end_offset, *([] if place.limit == NO_LIMIT else [place.limit]))
            return [place._replace(root=store.path, path=file.path, limit=limit)] if is_alike else None
    return None


def _queue_in(store: StoreView, key: QueueKey, begin: int, end: int) -> list[PartRange] | None:
    view = store.queue_views.get(key)
    if view is None or begin < view.begin or end > store.queue_end(view):
        return None
    if begin < end and view.unit(begin).offset < store.begin_offset:
        return None
    found = Slice(
        store.path,
        view.directory,
        store.begin_offset,
        store.end_offset,
        0,
        topic=key.topic,
        queue_id=key.queue_id,
        begin_queue_offset=begin,
        end_queue_offset=end,
    )
    return [found]


def clipped(places: Sequence[PartRange], begin: int, end: int) -> list[PartRange]:
    """Return the parts of these places in `[begin, end)`, in physical offsets, or in queue offsets for a queue.

    Bytes after the last place are included if its file contains them.
    """
    found: list[PartRange] = []
    for number, place in enumerate(places):
        if isinstance(place, BrokerRange):
            first, last = max(begin, place.begin), min(end, place.end)
            found += [place._replace(begin=first, end=last)] if first < last else []
        elif place.is_queue:
            first, last = max(begin, place.begin_queue_offset), min(end, place.end_queue_offset)
            found += [place._replace(begin_queue_offset=first, end_queue_offset=last)] if first < last else []
        else:
            bound = max(place.end, place.limit) if number == len(places) - 1 else place.end
            first, last = max(begin, place.begin), min(end, bound)
            found += [_sub_slice(place, first, last)] if first < last else []
    return found


def _sub_slice(place: Slice, begin: int, end: int) -> Slice:
    if (begin, end) == (place.begin, place.end):
        return place
    return place._replace(
        begin=begin,
        end=end,
        begin_index=NO_INDEX,
        end_index=NO_INDEX,
        is_begin_known=place.is_begin_known or begin > place.begin,
        is_end_known=place.is_end_known or end != place.end,
    )
