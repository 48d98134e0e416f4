"""The filter of a reader as fields of a request: `tags`, or `sql`.

A broker that does not know the field `sql` must not ignore it, and deliver all messages. So a request with an
expression has tags that every version refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

from store.errors import IllegalRequest
from store.model.read_filter import Sql92
from store.model.tag_filter import ALL_TAGS

if TYPE_CHECKING:
    from cluster.v1.broker_pb2 import GetRequest, ReceiveRequest, SubscribeRequest, Subscription

# Not valid as tags.
TAGS_OF_SQL: Final = "|SQL92|"


class FilterFields(TypedDict):
    """The fields of a request."""

    tags: str
    sql: str


def filter_fields(expression: str) -> FilterFields:
    """Return the fields of a request for an expression: an `Sql92`, or tags."""
    if isinstance(expression, Sql92):
        return {"tags": TAGS_OF_SQL, "sql": str(expression)}
    return {"tags": expression, "sql": ""}


def expression_of(request: GetRequest | ReceiveRequest | SubscribeRequest | Subscription) -> str:
    """Return the expression of a request, which is not parsed yet: an `Sql92`, or tags.

    Raises:
        IllegalRequest: it has both.
    """
    if not request.sql:
        return request.tags
    if request.tags not in ("", ALL_TAGS, TAGS_OF_SQL):
        raise IllegalRequest("tags and sql", "only one of them", f"{request.tags[:80]!r} and {request.sql[:80]!r}")
    return Sql92(request.sql)
