"""The group of which a backup is made, over the client of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.backup.create import SourceFacts
from dledger.client.outcomes import ReadFailed
from dledger.errors import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dledger.client import Entry, LogClient


class GroupLog:
    """`cluster.backup.create.LogSource` of a running group.

    Args:
        client: of the log; connected as a user that may read it.
        is_follower_preferred: read from a follower if there is one; the leader only confirms the commit index.
    """

    def __init__(self, client: LogClient, *, is_follower_preferred: bool = True) -> None:
        self._client = client
        self._is_follower_preferred = is_follower_preferred

    def facts(self) -> SourceFacts:
        """Return the facts of the leader's log.

        Raises:
            ReadFailed: there is no leader, or it does not answer.
        """
        status = self._client.status()
        return SourceFacts(
            status.group,
            status.group_id,
            status.leader.address,
            status.begin_index,
            status.begin_position,
            status.commit_index,
            status.applied_index >= 0,
        )

    def entries(self, begin: int) -> Iterator[Entry]:
        """Yield the entries from `begin` on that are committed when the read begins.

        Raises:
            ReadFailed: no node has them all, or the group does not answer.
        """
        next_index = begin
        try:
            for entry in self._client.read(begin, include_internal=True, prefer_followers=self._is_follower_preferred):
                next_index = entry.index + 1
                yield entry
        except ReadFailed as failure:
            # Each node deletes old entries by itself.
            if failure.code != ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN or not self._is_follower_preferred:
                raise
        else:
            return
        yield from self._client.read(next_index, include_internal=True)
