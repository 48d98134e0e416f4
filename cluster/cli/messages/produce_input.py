"""The input of `dledger produce`: converts lines, JSON lines or files to messages, and messages to batches.

| input | a message |
| --- | --- |
| `lines` | a line without its newline; with a separator the text before the first one is its keys: `o-17:order 17` |
| `jsonl` | a line with a JSON object: `body` (text) or `bodyBase64`, and, all optional, `tag`, `keys` (a list, |
| | or text with blanks between keys), `properties`, `queueKey`, `queueId`; what `consume --format jsonl` prints fits |
| `file` | a whole file |
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from store.fs.foreign_json import foreign_json
from store.model.message import KEYS, TAGS, UNIQUE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BODY_SIZE_MAX: Final = 4 << 20
BATCH_SIZE_MAX: Final = 4 << 20
BATCH_MESSAGES_MAX: Final = 100
# A JSON line is longer than its body: it has escapes and other fields.
_JSON_LINE_SIZE_MAX: Final = 8 * BODY_SIZE_MAX
# Properties that are not copied from exported messages: the broker, or this command, sets them again.
_OWN_PROPERTIES: Final = frozenset({TAGS, KEYS, UNIQUE_KEY})
# Other fields of `dledger consume --format jsonl`, which describe the stored message; they are ignored.
_OF_STORED: Final = frozenset(
    {
        "topic", "queueOffset", "physicalOffset", "size", "uniqKey", "storeTimestamp", "bornTimestamp", "bornHost",
        "storeHost", "msgId", "magic", "flag", "sysFlag", "reconsumeTimes", "preparedTransactionOffset", "bodyCRC",
    }
)  # fmt: skip
_KNOWN: Final = frozenset({"body", "bodyBase64", "tag", "keys", "properties", "queueKey", "queueId"}) | _OF_STORED


class Input(StrEnum):
    """The source of a message."""

    LINES = "lines"
    JSONL = "jsonl"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send.

    Attributes:
        body: the payload.
        properties: without UNIQ_KEY.
        queue_key: messages with the same key go to the same queue; None: any queue.
        queue_id: the queue; None: any.
        read_bytes: bytes of input for it, for the progress bar.
    """

    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    queue_key: str | None = None
    queue_id: int | None = None
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults for fields that the input does not set.

    Attributes:
        tag, keys, headers: TAGS, KEYS and other properties.
        queue_key: messages with the same key go to the same queue, in order; None: round robin.
        key_separator: for `lines`: the text before it is the message's keys; empty: no keys.
        is_by_key: whether the keys of a message are also its queue key.
    """

    tag: str = ""
    keys: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    queue_key: str | None = None
    key_separator: str = ""
    is_by_key: bool = False

    def message(self, body: bytes, read_bytes: int, **own: Any) -> Outgoing:
        """Return a message; `own` may set `tag`, `keys`, `properties`, `queue_key`, `queue_id`; None: the default."""
        keys = own.get("keys") or self.keys
        named = {KEYS: keys, TAGS: own.get("tag") or self.tag}
        properties = {**self.headers, **(own.get("properties") or {})}
        properties |= {name: value for name, value in named.items() if value}
        queue_key = own.get("queue_key") or (keys if self.is_by_key and keys else None) or self.queue_key
        return Outgoing(body, properties, queue_key, own.get("queue_id"), read_bytes)


def parse_headers(texts: Iterable[str]) -> dict[str, str]:
    """Parse properties from `NAME=VALUE` texts.

    Raises:
        ValueError: a text has another format, or a name for which there is another option.
    """
    headers = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ValueError(f"--header {text}: expected NAME=VALUE")
        if name in _OWN_PROPERTIES:
            raise ValueError(f"--header {text}: {name} is set by --tag or --key, or by the command itself")
        headers[name] = value
    return headers


def messages_of(stream: BinaryIO, name: str, kind: Input, defaults: Defaults) -> Iterator[Outgoing]:
    """Yield the messages of a file.

    Args:
        stream: the open file, which is not closed.
        name: name of the file for errors.
        kind: its format.
        defaults: values of fields that the input does not set.

    Raises:
        ValueError: a message is too large, or a line is invalid; the text has the file, the line, expected and found.
    """
    if kind is Input.FILE:
        body = stream.read(BODY_SIZE_MAX + 1)
        _check_size(len(body), f"{name}")
        yield defaults.message(body, len(body))
        return
    size_max = _JSON_LINE_SIZE_MAX if kind is Input.JSONL else BODY_SIZE_MAX + 1024
    number = 0
    while raw := stream.readline(size_max + 2):
        number += 1
        line, where = raw.rstrip(b"\r\n"), f"{name}, line {number}"
        if len(raw) > size_max:
            raise ValueError(f"{where}: expected at most {size_max:,} bytes, found a longer line")
        if kind is Input.LINES:
            yield _of_line(line, where, len(raw), defaults)
        elif line.strip():
            yield _of_json(line, where, len(raw), defaults)


def _of_line(line: bytes, where: str, read_bytes: int, defaults: Defaults) -> Outgoing:
    keys = None
    if defaults.key_separator:
        head, separator, line = line.partition(defaults.key_separator.encode())
        if not separator:
            raise ValueError(f"{where}: expected KEYS{defaults.key_separator}BODY, found no {defaults.key_separator!r}")
        keys = head.decode("utf-8", "replace")
    _check_size(len(line), where)
    return defaults.message(line, read_bytes, keys=keys)


def _of_json(line: bytes, where: str, read_bytes: int, defaults: Defaults) -> Outgoing:
    try:
        row = foreign_json(line)
    except ValueError as error:
        raise ValueError(f"{where}: expected a JSON object, found {line[:60]!r}: {error}") from None
    if not isinstance(row, dict) or not row.keys() <= _KNOWN:
        unknown = sorted(row.keys() - _KNOWN) if isinstance(row, dict) else [type(row).__name__]
        raise ValueError(f"{where}: expected an object of {', '.join(sorted(_KNOWN - _OF_STORED))}, found {unknown}")
    body = _body_of(row, where)
    _check_size(len(body), where)
    keys, properties, queue_id = row.get("keys"), row.get("properties") or {}, row.get("queueId")
    if isinstance(keys, list):
        keys = " ".join(map(str, keys))
    are_texts = isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values())
    if not are_texts or not isinstance(keys, str | None) or not isinstance(row.get("tag"), str | None):
        raise ValueError(f"{where}: expected texts in tag, keys and properties, found {line[:60]!r}")
    # The queue of an exported message is not valid in another topic.
    is_copy = "queueOffset" in row
    if queue_id is not None and (not isinstance(queue_id, int) or isinstance(queue_id, bool) or queue_id < 0):
        raise ValueError(f"{where}: expected a queueId of at least 0, found {queue_id!r}")
    own = {name: value for name, value in properties.items() if name not in _OWN_PROPERTIES}
    return defaults.message(
        body, read_bytes, tag=row.get("tag"), keys=keys, properties=own, queue_key=row.get("queueKey"),
        queue_id=None if is_copy else queue_id,
    )  # fmt: skip


def _body_of(row: Mapping[str, Any], where: str) -> bytes:
    if ("body" in row) == ("bodyBase64" in row):
        raise ValueError(f"{where}: expected one of body and bodyBase64, found {sorted(row)}")
    try:
        return base64.b64decode(row["bodyBase64"], validate=True) if "bodyBase64" in row else row["body"].encode()
    except (AttributeError, TypeError, binascii.Error) as error:
        raise ValueError(f"{where}: expected a text in body, or Base64 in bodyBase64: {error}") from None


def _check_size(size: int, where: str) -> None:
    if size > BODY_SIZE_MAX:
        raise ValueError(f"{where}: expected a message of at most {BODY_SIZE_MAX:,} bytes, found more")


def batches_of(messages: Iterable[Outgoing], count_max: int = BATCH_MESSAGES_MAX) -> Iterator[list[Outgoing]]:
    """Yield batches of at most `count_max` messages and, unless it is one message, `BATCH_SIZE_MAX` bytes, in order.

    Raises:
        ValueError: from `messages`, after all messages before it were yielded.
    """
    batch: list[Outgoing] = []
    size = 0
    try:
        for message in messages:
            if batch and size + len(message.body) > BATCH_SIZE_MAX:
                yield batch
                batch, size = [], 0
            batch.append(message)
            size += len(message.body)
            if len(batch) == count_max:
                yield batch
                batch, size = [], 0
    except ValueError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch
