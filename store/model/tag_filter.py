"""The filter of a reader by tags: `*`, or tags with `||` between them.

A queue's unit has only the hash of the tag, so a broker first excludes units by the hash, many at once
(`store.model.tags_codes`), and then compares the actual tags of the rest, so that the client does not have to
distinguish tags with equal hashes.

Source: RocketMQ `FilterAPI.buildSubscriptionData`, `DefaultMessageFilter`, `ExpressionMessageFilter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from store.errors import IllegalRequest
from store.model.java_hash import java_hash
from store.model.message import TAGS, StoredMessage

ALL_TAGS = "*"
_OR = "||"
# Bounded, because every unit is compared with every tag.
_TAGS_MAX = 256
_EXPRESSION_LENGTH_MAX = 8_192
# Bytes of properties that are decoded in about a microsecond if they are as unfavourable as possible.
_DECODED_BYTES = 16


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A parsed tags expression.

    Attributes:
        tags: the wanted ones; empty: every message.
        codes: their hashes, ascending.
    """

    tags: frozenset[str]
    codes: tuple[int, ...]

    @classmethod
    def parse(cls, expression: str | None) -> TagFilter:
        """Read `*` (also an empty expression, or None), or `A || B`; blanks around a tag and empty tags do not count.

        Raises:
            IllegalRequest: the expression has no such form.
        """
        if expression is None:
            return EVERYTHING
        # Checked first, because splitting a long expression would block the server.
        if len(expression) > _EXPRESSION_LENGTH_MAX:
            expected = f"at most {_EXPRESSION_LENGTH_MAX} characters"
            raise IllegalRequest("tags expression", expected, f"{len(expression)}: {expression[:80]!r}…")
        return _parse(expression)

    @property
    def is_everything(self) -> bool:
        """Whether the filter accepts every message."""
        return not self.tags

    def matches(self, message: StoredMessage) -> bool:
        """Return whether the message has a wanted tag."""
        return not self.tags or message.properties.get(TAGS) in self.tags

    def work(self, message: StoredMessage) -> int:
        """Return how long `matches` takes at most, in units of about a microsecond."""
        return 0 if self.is_everything else 1 + message.properties_size // _DECODED_BYTES


EVERYTHING = TagFilter(frozenset(), ())


@lru_cache(maxsize=1024)
def _parse(expression: str) -> TagFilter:
    """Return the filter for a tags expression; cached, since readers send the same few expressions repeatedly."""
    if expression.strip() in ("", ALL_TAGS):
        return EVERYTHING
    tags = frozenset(part.strip() for part in expression.split(_OR)) - {""}
    is_known = tags and ALL_TAGS not in tags and not any(set(tag) & {"|", "\x01", "\x02"} for tag in tags)
    if not is_known or len(tags) > _TAGS_MAX:
        raise IllegalRequest(
            "tags expression", f"'*' or at most {_TAGS_MAX} tags with '||' between them", repr(expression[:200])
        )
    return TagFilter(tags, tuple(sorted({java_hash(tag) for tag in tags})))
