"""The bits of a message's `sys_flag`.

| bits | value | meaning |
| ---- | ----- | ------- |
| 0 | 0x1 | the body is compressed |
| 1 | 0x2 | it has several tags; readers ignore that |
| 2, 3 | 0x0, 0x4, 0x8, 0xC | transaction: none, prepared, commit, rollback |
| 4 | 0x10 | the born host is IPv6 |
| 5 | 0x20 | the store host is IPv6 |
| 6 | 0x40 | the client must unwrap the inner batch |
| 7 | 0x80 | the body is an inner batch |
| 8 to 10 | 0x100, 0x200, 0x300 | compressed with LZ4, Zstandard, zlib; 0 is zlib too |
| 22, 30 | 0x40400000 | the record carries an effect on broker state (`commitlog.record.effects`); not RocketMQ's |

The table contains all bits of RocketMQ, including unused ones, which ignores those that it does not know.

Source: RocketMQ `MessageSysFlag`, `CompressionType`.
"""

from __future__ import annotations

from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_NOT_TYPE: Final = 0x0
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_IPV6: Final = 0x10
STORE_HOST_IPV6: Final = 0x20
HOST_MASK: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_SHIFT: Final = 8
COMPRESSION_MASK: Final = 0x700
CARRIES_EFFECT: Final = 0x4040_0000

# PREPARED and ROLLBACK have this bit; none and COMMIT do not.
_NOT_QUEUED: Final = TRANSACTION_PREPARED_TYPE


def transaction_type(sys_flag: int) -> int:
    """Return one of the four TRANSACTION_… values."""
    return sys_flag & TRANSACTION_MASK


def has_queue_offset(sys_flag: int) -> bool:
    """Return whether such a message has a queue offset; a prepared or rolled-back one has none.

    Source: RocketMQ `CommitLog`: `doAppend` stores queue offset 0 for those.
    """
    return not sys_flag & _NOT_QUEUED
