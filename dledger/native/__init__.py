"""What costs most per entry or per file, in C: one optional module, and the choice between it and Python.

Every function of the module has a reference in Python, which is used where the module is missing, and against which
tests compare it: the same bytes, the same errors. It is built by `make setup`, or by pip with the package, where there
is a C compiler (`scripts/build_native.py`). `DLEDGER_NATIVE=0` in the environment forces Python.

| function         | reference                              |
| ---------------- | -------------------------------------- |
| `encode_entries` | `dledger.entries.format.entry.encode_batch` |
| `walk_entries`   | `dledger.entries.format.walk.walk`     |
| `encode_records` | `commitlog.record.encoder.RecordEncoder.prepare`, `PreparedRecords.encode_each` |
| `find_keys`      | `commitlog.record.unique_keys.find_keys` |
| `walk_records`   | `commitlog.record.scan.walk` |
| `record_columns` | `commitlog.record.columns.columns` |
| `check_records`  | `commitlog.record.rows.good_rows`      |
| `locate_records` | `commitlog.record.record_runs.located_in_python`, `Record.check` |
| `split_records`  | `commitlog.record.record_runs.split_in_python` |
| `copy_records`  | `commitlog.record.copied_records.copied_in_python` |
| `decode_properties` | `commitlog.record.properties.decode_in_python` |
| `decode_records` | `pipeline.columns.decoder.decode_rows` |
| `write_files`    | `store.fs.writing_in_turn.write_in_turn` |
| `sync_files`     | `store.fs.linux.files.OsFile.sync`     |

A function returns None for arguments that it does not handle, for example a number that does not fit into 62 bits; the
caller then runs the reference. Any package may import this one; it imports nothing of ours.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    # Any object with the buffer protocol; `collections.abc.Buffer` is new in 3.12.
    Buffer = Any
    Row = tuple[int, int, int, int, int, int, int, int, int]
    Copied = tuple[bytes, bytes, bytes, bytes, int, int, int, bytes, int, int]

# Of the functions' arguments and results; the same number is in kernels.c.
VERSION: Final = 10
VARIABLE: Final = "DLEDGER_NATIVE"


class Kernels(Protocol):
    """The functions of the module in C; all arguments are positional."""

    def encode_entries(
        self,
        bodies: Sequence[bytes],
        first_index: int,
        term: int,
        position: int,
        chain_crc: int,
        magic: int,
        channel: int,
        stamp_at: int | None,
        /,
    ) -> tuple[bytes, bytes, list[int], int] | None:
        """Return data, index units, positions and the last chain checksum of `EncodedBatch`."""
        ...

    def write_files(self, writes: Sequence[tuple[str, int, bytes | memoryview, int]], /) -> list[int | None] | None:
        """Open existing files, allocate blocks and write: path, position, data, allocated bytes from the position on.

        Returns:
            Open descriptors, None for a missing file; fewer than `writes` if one failed, of which nothing is open.
        """
        ...

    def sync_files(self, descriptors: tuple[int, ...], threads_max: int, /) -> list[tuple[int, int]] | None:
        """Sync open files in parallel; return number and errno of each that failed."""
        ...

    def walk_entries(  # noqa: PLR0917 - a tuple would only be taken apart again
        self,
        buffer: memoryview,
        offset: int,
        end: int,
        position: int,
        index: int,
        term: int,
        chain_crc: int,
        count_max: int,
        marker_at: int,
        /,
    ) -> tuple[bytes, int, int, int, int, bool] | None:
        """Check clients' entries up to the first that is invalid, or that a codec has to check.

        Returns:
            Their index units; the offset after them; index, term and chain checksum of `WalkState`; and whether a codec
            has to check the entry at that offset.
        """
        ...

    def encode_records(  # noqa: PLR0917
        self,
        bodies: Sequence[bytes],
        properties: Sequence[bytes],
        numbers: tuple[Sequence[int] | int, ...],
        magic: int,
        topic: bytes,
        born_host: bytes,
        store_host: bytes,
        store_timestamp: int,
        body_size_max: int,
        may_carry_effects: int,
        /,
    ) -> tuple[list[bytes], list[int]] | None:
        """Return records with physical offset 0, and their sizes.

        Args:
            bodies: of the messages; the other lists have one element for each.
            properties: encoded.
            numbers: queue ids, queue offsets, flags, sys flags, born timestamps, reconsume times, offsets of prepared
                transactions and checksums of the bodies (CRC-32): lists, or one number for all messages.
            magic: of the records.
            topic: the name, with its length before it.
            born_host: encoded.
            store_host: encoded.
            store_timestamp: of all of them; milliseconds since 1970.
            body_size_max: in bytes.
            may_carry_effects: 1: the mark of an effect is stored; 0: it is removed from the sys flags.
        """
        ...

    def find_keys(
        self, properties: Sequence[bytes], mark: bytes, prefix: bytes, prefix_hash: int, /
    ) -> tuple[list[bytes], list[int]] | None:
        """Return a value of each message, as `prefix` + value, and the hash of `topic#value`; b"" and 0 without one.

        Args:
            properties: encoded.
            mark: the name of the property and 0x01.
            prefix: of the returned keys.
            prefix_hash: `store.model.java_hash.key_prefix_hash` of the topic.
        """
        ...

    def walk_records(
        self, buffer: memoryview, position: int, end: int, limit: int, count_max: int, header_size: int, /
    ) -> tuple[list[int], list[int], int] | None:
        """Follow clients' records by their sizes; return their starts, their sizes, and the position after the last.

        Args:
            buffer: contains the records.
            position: of the first record, or its entry.
            end: no record extends beyond it.
            limit: no record (or entry) begins there or after it.
            count_max: of records.
            header_size: 48: each record is the body of an entry; else 0.
        """
        ...

    def record_columns(
        self, buffer: memoryview, starts: Sequence[int], sizes: Sequence[int], base_offset: int, /
    ) -> tuple[Sequence[tuple[str, int]], bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes] | None:
        """Return the distinct queues of records, and their columns, each as the bytes of an array.

        These are: physical offsets (int64), sizes (int32), queue offsets (int64), tags codes (int64), store timestamps
        (int64), queue numbers (int32), whether each is queued (bool), key hashes (int32), key rows (int64).
        """
        ...

    def check_records(
        self,
        buffer: Buffer,
        begins: Buffer,
        ends: Buffer,
        displacement: int,
        has_headers: int,
        heads: Buffer,
        positions: Buffer,
        /,
    ) -> int | None:
        """Check records, each with `has_headers` after the header of an entry, up to the first that is invalid.

        Begins and ends are arrays of int64, the displacement is physical offset minus position of a record. For each
        valid record its fields with the header before them are written to `heads`, and to `positions`, four arrays
        of int64, begin and end of body and topic.

        Returns:
            The number of valid records.
        """
        ...

    def locate_records(
        self,
        buffer: Buffer,
        places: Sequence[int],
        sizes: Sequence[int],
        base_offset: int,
        begin: int,
        end: int,
        has_headers: int,
        /,
    ) -> list[Row] | None:
        """Check records and their bodies, up to the first that is invalid.

        Args:
            buffer: contains the records.
            places: a list: offset of each in the log.
            sizes: a list, as long.
            base_offset: of the buffer's first byte in the log.
            begin: no record begins before it, in the log.
            end: no record ends after it, in the log.
            has_headers: 1: each record is the body of a client's entry, whose header is checked, too.

        Returns:
            A `commitlog.record.record.RecordRow` of each valid record.
        """
        ...

    def split_records(self, buffer: Buffer, /) -> list[Row] | None:
        """Check records that are back to back from the buffer's first byte on, and their bodies.

        Returns:
            A `commitlog.record.record.RecordRow` of each, up to the first that is invalid, or that Python has to check.
        """
        ...

    def copy_records(
        self,
        buffer: Buffer,
        rows: Sequence[Row],
        units: Sequence[int],
        topic: bytes,
        queue_id: int,
        before_time: bytes,
        before_unit: bytes,
        /,
    ) -> list[Copied] | None:
        """Return the parts of copies of records, up to the first record that Python has to examine.

        Args:
            buffer: contains the records.
            rows: of each record, as of `locate_records`.
            units: the expected queue offset of each.
            topic: the expected topic.
            queue_id: the expected queue.
            before_time: of properties that are added: what is before the store timestamp; empty: without it.
            before_unit: of properties that are added: what is before the queue offset.

        Returns:
            A `commitlog.record.copied_records.CopiedRecord` of each.
        """
        ...

    def decode_properties(self, raw: Buffer, /) -> dict[str, str] | None:
        """Return names and values of encoded properties, which are `bytes`."""
        ...

    def decode_records(
        self,
        buffer: Buffer,
        begins: Buffer,
        ends: Buffer,
        displacement: int | None,
        first_index: int,
        is_crc_checked: int,
        refused_topic: bytes,
        outputs: tuple[Any, ...],
        /,
    ) -> tuple[int, ...] | None:
        """Check records and write their columns, if all of them are valid.

        Args:
            buffer: contains the records.
            begins: of each record.
            ends: of each record.
            displacement: as of `check_records`; None: neither it nor an entry's header is checked.
            first_index: of the first entry, which others follow without a gap; -1: not checked.
            is_crc_checked: 1: each entry must have a checksum, and the record that one.
            refused_topic: of records that are no messages; empty: none.
            outputs: 1 if headers are before the records; (position, output) of 4-byte fields, of 8-byte fields, of
                times in milliseconds, which become microseconds; (position, ends, bytes) of hosts; (ends, bytes) of
                body, topic, properties, each empty if not wanted; (name, bits of those that have it, ends, bytes) of
                properties; firsts, ends and bytes of names, ends and bytes of values, or empty. Positions are in the
                header with the fields after it. Ends are arrays of int32, the first of them 0.

        Returns:
            The bytes that are used of each host's texts, of body, topic and properties; of each property that was
            looked for the messages that have it, and the bytes; the number of all properties, and the bytes of their
            names and values.
        """
        ...


def load(environment_value: str = "") -> tuple[Kernels | None, str]:
    """Return the module, and what is in use: "native", or "Python" with the reason.

    Args:
        environment_value: of `DLEDGER_NATIVE`; "0": Python.
    """
    if environment_value == "0":
        return None, f"Python ({VARIABLE}=0)"
    try:
        found = import_module(f"{__name__}._kernels")
    except ModuleNotFoundError:
        return None, "Python (the native module is not built)"
    except ImportError as error:
        return None, f"Python ({error})"
    if found.VERSION != VERSION:
        return None, f"Python (the native module has version {found.VERSION}, not {VERSION}: build it again)"
    return cast("Kernels", found), "native"


# `kernels` is looked up at each call, so that tests run both.
kernels, in_use = load(os.environ.get(VARIABLE, ""))
