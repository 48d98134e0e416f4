"""The errors of the pipeline. Each names the option or file, the expected and actual value, and the next action.

All of them can be pickled: tasks raise them and the driver reports them.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHOWN_MAX: Final = 12
_LOST_REMEDY: Final = "Start after the missing messages, or set failOnDataLoss=false to skip them"


class PipelineError(StoreError):
    """Base of all errors of the pipeline.

    Attributes:
        what: the option, file, topic or range concerned.
        expected: the expected value.
        found: the actual value.
        remedy: the next action, one or two sentences.
    """

    def __init__(self, what: str, expected: str, found: str, remedy: str) -> None:
        super().__init__(f"{what}: expected {expected}, found {found}. {remedy.rstrip('.')}")
        self.what = what
        self.expected = expected
        self.found = found
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        """Make errors of subclasses picklable, whatever arguments their constructors take."""
        return _restore, (type(self), self.args, self.__dict__)


class BadOption(PipelineError):
    """An option has an invalid value, or conflicts with another one.

    Attributes:
        name: of the option.
    """

    def __init__(self, name: str, expected: str, found: object, remedy: str = "") -> None:
        super().__init__(f"option {name!r}", expected, str(found), remedy or f"Correct the option {name!r}")
        self.name = name


class UnknownOption(BadOption):
    """There is no option of this name; an earlier version may have had one."""

    def __init__(self, name: str, known: Iterable[str], remedy: str | None = None) -> None:
        names = sorted(known)
        found = "no such option" if remedy is None else "an option of an earlier version"
        super().__init__(name, f"one of {', '.join(names)}", found, remedy or _did_you_mean(name, names))


class NoCatalogTable(PipelineError):
    """`CREATE TABLE … USING` was given. Spark keeps a table's options and never passes them to a source in Python."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"CREATE TABLE … USING {name}", "a temporary view", "a table of the catalog, whose options Spark does not "
            "pass on when the table is read", f"Write CREATE TEMPORARY VIEW … USING `{name}` OPTIONS (path '…')",
        )  # fmt: skip


class UnknownColumn(BadOption):
    """There is no column of this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__("columns", f"names out of {', '.join(known)}", repr(name), _did_you_mean(name, known))
        self.column = name


class NoStore(PipelineError):
    """A directory does not exist, cannot be read, or has no message store.

    Attributes:
        path: of the directory.
    """

    def __init__(self, path: str, found: str) -> None:
        expected = "the directory of a message store (RocketMQ's or ours)"
        super().__init__(path, expected, found, "Name the directory that holds commitlog/ or dledger-<id>/")
        self.path = path


class StoreUnreadable(PipelineError):
    """A file of a store cannot be opened or read; the user of the task may lack the permission.

    Attributes:
        path: of the file.
    """

    def __init__(self, path: str, found: str) -> None:
        super().__init__(
            path, "a file that can be read", found, "Check that the task may read it, and that its disk works"
        )
        self.path = path


class NotWritable(PipelineError):
    """An output file or folder cannot be written.

    Attributes:
        path: of the file or folder.
    """

    def __init__(self, path: str, found: str) -> None:
        super().__init__(
            path, "space to write to", found, "Name a folder that the tasks may write to, with enough space"
        )
        self.path = path


class UnknownTopic(PipelineError):
    """A named topic or queue does not exist.

    Attributes:
        topic: its name.
    """

    def __init__(self, topic: str, known: Iterable[str], queue_id: int | None = None) -> None:
        names = sorted(known)
        shown = ", ".join(names[:_SHOWN_MAX]) + (
            f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
        )
        what = f"topic {topic!r}" if queue_id is None else f"queue {queue_id} of topic {topic!r}"
        super().__init__(what, f"one of: {shown or 'none'}", "none of that name", _did_you_mean(topic, names))
        self.topic = topic
        self.queue_id = queue_id


class LostRange(NamedTuple):
    """A range of requested messages that no longer exist.

    Attributes:
        what: `topic orders, queue 3` (then offsets of the queue), `entries` (indexes) or `log` (physical offsets).
        begin, end: the range, half open.
        reason: in a few words.
    """

    what: str
    begin: int
    end: int
    reason: str

    def __str__(self) -> str:
        """Return the text for messages."""
        return f"{self.what} [{self.begin}, {self.end}): {self.reason}"


class DataLost(PipelineError):
    """Requested messages do not exist: expired, deleted after planning, or never in this store.

    Attributes:
        lost: the ranges.
    """

    def __init__(self, what: str, lost: Sequence[LostRange], remedy: str = _LOST_REMEDY) -> None:
        shown = "; ".join(map(str, lost[:_SHOWN_MAX]))
        more = f"; and {len(lost) - _SHOWN_MAX} more" if len(lost) > _SHOWN_MAX else ""
        super().__init__(what, "all messages of the range", f"lost {shown}{more}", remedy)
        self.lost = tuple(lost)


class CorruptRecord(PipelineError):
    """Bytes of the log are not a valid record; valid ones may follow.

    Attributes:
        path: of the file.
        position: begin of the bytes in the file.
        offset: begin of the bytes in the log.
        size: number of bytes.
    """

    def __init__(self, path: str, position: int, offset: int, size: int, fault: tuple[str, str]) -> None:
        remedy = "Read another replica, or skip these bytes: onCorrupt=skip, or onCorrupt=quarantine to keep a copy"
        super().__init__(f"{path}, {size} bytes at {position} (offset {offset})", *fault, remedy)
        self.path = path
        self.position = position
        self.offset = offset
        self.size = size


class NoPyArrow(PipelineError, ImportError):
    """The Python of a driver or of an executor has no pyarrow."""

    def __init__(self, interpreter: str, found: str) -> None:
        remedy = "Install it there: pip install 'pyarrow>=18' numpy; docs/pipeline.md says how to send it to executors"
        super().__init__(f"Python {interpreter}", "the package pyarrow", found, remedy)


class BadSchema(PipelineError):
    """A user's schema does not match the messages."""

    def __init__(self, column: str, expected: str, found: str) -> None:
        remedy = "Use names and types of the source's schema; a schema with fewer columns reads less"
        super().__init__(f"schema, column {column!r}", expected, found, remedy)


class ForeignCheckpoint(PipelineError):
    """The checkpoint of a streaming query belongs to another query or log."""

    def __init__(self, expected: str, found: str) -> None:
        remedy = "Give each query its own checkpointLocation; a new one begins at startingOffsets"
        super().__init__("checkpoint", expected, found, remedy)


class SecurityUnusable(PipelineError):
    """A file of certificates or a token, which the environment of this process names, cannot be used."""

    def __init__(self, found: str) -> None:
        super().__init__(
            "DLEDGER_TLS_CA, _CERT, _KEY and DLEDGER_TOKEN_FILE", "files that this process can use", found,
            "They are read by the driver and by each executor (spark.executorEnv)",
        )  # fmt: skip


class BrokerUnreachable(PipelineError):
    """No node of a broker answered in time.

    Attributes:
        endpoints: the nodes that were called.
    """

    def __init__(self, endpoints: str, found: str) -> None:
        remedy = "Check the option 'endpoints', and that the nodes are running"
        super().__init__(f"broker {endpoints}", "an answer of one of its nodes", found, remedy)
        self.endpoints = endpoints


class BrokerRefused(PipelineError):
    """A broker refused a request permanently.

    Attributes:
        endpoints: the nodes that were called.
    """

    def __init__(self, endpoints: str, found: str) -> None:
        super().__init__(f"broker {endpoints}", "the requested data", found, "Resolve the reason that the broker gives")
        self.endpoints = endpoints


def _restore(cls: type[PipelineError], args: tuple[Any, ...], state: dict[str, Any]) -> PipelineError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 1, 0.6)
    return f"Did you mean {close[0]!r}?" if close else "Check how it is spelt"
