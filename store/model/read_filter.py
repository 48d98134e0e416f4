"""The filter of a reader: tags, or an SQL92 expression over the properties of messages.

Not here: which units of a queue are looked at (`store.model.tags_codes`), and the language (`store.sql92`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from store.model.tag_filter import TagFilter
from store.sql92.predicate import predicate_of

if TYPE_CHECKING:
    from store.model.message import StoredMessage


class Sql92(str):
    """The text of an SQL92 expression: `amount > 100 AND region IN ('eu', 'us')`. Other texts are tags expressions."""

    __slots__ = ()


class ReadFilter(Protocol):
    """Decides which messages a reader gets."""

    @property
    def is_everything(self) -> bool:
        """Whether it accepts every message."""
        ...

    def matches(self, message: StoredMessage) -> bool:
        """Return whether a message is accepted."""
        ...

    def work(self, message: StoredMessage) -> int:
        """Return how long `matches` takes at most, in units of about a microsecond."""
        ...


class SqlFilter:
    """A filter by an SQL92 expression: a message is accepted if it is TRUE for its properties.

    Args:
        expression: its text.

    Raises:
        store.errors.IllegalExpression: it cannot be compiled.
    """

    __slots__ = ("_predicate",)

    is_everything = False

    def __init__(self, expression: str) -> None:
        self._predicate = predicate_of(str(expression))

    def matches(self, message: StoredMessage) -> bool:
        """Return whether the expression is TRUE."""
        return self._predicate.matches(message.properties_raw)

    def work(self, message: StoredMessage) -> int:
        """Return the cost of `matches`."""
        return self._predicate.work(message.properties_size)


def parse_filter(expression: str | None) -> ReadFilter:
    """Return the filter of an expression: an `Sql92`, or tags (`TagFilter.parse`).

    Raises:
        IllegalRequest: the expression has no such form.
    """
    return SqlFilter(expression) if isinstance(expression, Sql92) else TagFilter.parse(expression)
