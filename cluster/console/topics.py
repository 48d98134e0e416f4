"""The topics of brokers, for the page that lists them: asked when the page is loaded, sorted and cut on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cluster.client.broker_calls import BrokerCalls
from cluster.protocol.errors import RequestFailed
from cluster.protocol.topic_types import MESSAGE_TYPE, TopicType
from cluster.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dledger.security.settings import Security

PAGE_ROWS: Final = 100
_TIMEOUT_S: Final = 3.0
_PERMISSIONS: Final = {6: "read, write", 4: "read", 2: "write"}


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic of one broker."""

    name: str
    broker: str
    read_queues: int
    write_queues: int
    permission: str
    kind: str


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """A part of the topics.

    Attributes:
        rows: of this page, by name.
        matching_count, all_count: topics that match the search, and all.
        begin: the number of rows before this page.
        faults: by broker, why its topics are not known: they are missing in the rows and the counts.
    """

    rows: tuple[TopicRow, ...]
    matching_count: int
    all_count: int
    begin: int
    faults: Mapping[str, str]

    @property
    def previous(self) -> int | None:
        """`begin` of the previous page; None: this is the first."""
        return None if self.begin == 0 else max(self.begin - PAGE_ROWS, 0)

    @property
    def next(self) -> int | None:
        """`begin` of the next page; None: this is the last."""
        end = self.begin + len(self.rows)
        return end if end < self.matching_count else None


def ask_topics(groups: Mapping[str, Sequence[str]], security: Security) -> tuple[list[TopicRow], dict[str, str]]:
    """Return the topics of all brokers, and the faults of those that do not answer; blocks for some seconds at most."""
    rows: list[TopicRow] = []
    faults: dict[str, str] = {}
    for group, addresses in groups.items():
        try:
            with BrokerCalls(",".join(addresses), _TIMEOUT_S, security=security) as calls:
                listed = calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest())
        except RequestFailed as failure:
            faults[group] = str(failure)
        else:
            rows += [_row_of(group, topic) for topic in listed.topics]
    return rows, faults


def page_of(rows: Sequence[TopicRow], faults: Mapping[str, str], *, search: str, begin: int) -> TopicsPage:
    """Return the rows whose name contains `search`, from the one with number `begin` on."""
    matching = sorted(
        (row for row in rows if search.lower() in row.name.lower()), key=lambda row: (row.name, row.broker)
    )
    begin = min(max(begin, 0), max(len(matching) - 1, 0)) // PAGE_ROWS * PAGE_ROWS
    return TopicsPage(tuple(matching[begin : begin + PAGE_ROWS]), len(matching), len(rows), begin, faults)


def _row_of(group: str, topic: Any) -> TopicRow:
    return TopicRow(
        name=topic.name,
        broker=group,
        read_queues=topic.read_queues,
        write_queues=topic.write_queues,
        permission=_PERMISSIONS.get(topic.permission & 6, "none"),
        kind=topic.attributes.get(MESSAGE_TYPE, TopicType.UNSPECIFIED).lower(),
    )
