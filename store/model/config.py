"""Settings of a message store, under RocketMQ's names (`MessageStoreConfig`) and with its defaults."""

from __future__ import annotations

from dataclasses import dataclass

from store.fs.retention_rules import HOUR_S, RetentionRules

_KIB = 1024
_MIB = 1024 * _KIB
_QUEUE_UNIT_SIZE = 20
_PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class MessageStoreConfig:
    """Settings of queues, index, reading, flushing and retention; the log has its own settings.

    Attributes:
        mapped_file_size_consume_queue: bytes of a consume-queue file; a multiple of 20. Fixed for the life of the data.
        max_hash_slot_num: slots of an index file. Fixed for the life of the data.
        max_index_num: items of an index file, one of which is never used. Fixed for the life of the data.
        message_index_enable: False: no key is indexed, and queries by key find nothing.
        max_transfer_bytes_on_message_in_memory: of one `get` of messages that are likely in memory.
        max_transfer_count_on_message_in_memory: messages of one `get`, likewise.
        max_transfer_bytes_on_message_in_disk: of one `get` that reads older messages.
        max_transfer_count_on_message_in_disk: messages of one `get` that reads older messages.
        access_message_in_memory_max_bytes: size of the log's end that counts as in memory; 0: 40 % of the memory.
        max_filter_message_size: bytes of queue units that one `get` searches for a tag, at least.
        max_msgs_num_batch: the most messages that a query by key returns.
        waiters_max: readers that may wait for new messages at the same time.
        pending_puts_max: puts that may wait for the disk at the same time.
        dedupe_window_count: newest messages of the log with which a put is compared, by UNIQ_KEY; 0: none.
        dedupe_window_ms: largest difference between their time and that of the newest message.
        sync_flush_timeout_ms: time limit for a put that waits until it is durable.
        dispatch_size_bytes: bytes of the log that are dispatched in one step.
        flush_interval_commit_log_ms: how often a log that is not flushed before acknowledging is flushed.
        flush_commit_log_least_pages: not before this many pages of 4 KiB wait.
        flush_commit_log_thorough_interval_ms: after this time everything is flushed, however little.
        flush_interval_consume_queue_ms: how often queues and index are flushed.
        flush_consume_queue_least_pages: not before this many pages of 4 KiB wait, in a queue.
        flush_consume_queue_thorough_interval_ms: after this time everything is flushed, however little.
        redispatch_max_bytes: everything is flushed, the index too, when this much of the log is not durable in queues
            and index. It bounds what a start after a crash dispatches again, besides the messages of a few seconds.
        checkpoint_interval_ms: how often the checkpoint is written, in addition to each thorough flush.
        clean_resource_interval_ms: how often retention checks for files to delete.
        delete_when: hours of the day, local time, in which old files are deleted.
        file_reserved_time: hours that a file is kept after its last write.
        disk_max_used_space_ratio: used percentage of the disk above which old files are deleted at any hour; 10 to 95.
        disk_space_clean_forcibly_ratio: percentage above which young files are deleted, too; 30 to 85.
        disk_space_warning_level_ratio: percent above which puts are refused; 35 to 90.
        clean_file_forcibly_enable: False: young files are never deleted.
        delete_file_batch_max: files deleted in one run.
        archive_mark: file with the offset up to which the log is archived (`store.maintenance.archive_mark`); what is
            not archived is never deleted, however full the disk. Empty: there is no archive.
        archive_log: name of the log in that archive.
    """

    mapped_file_size_consume_queue: int = 300_000 * _QUEUE_UNIT_SIZE
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = True
    max_transfer_bytes_on_message_in_memory: int = 256 * _KIB
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 * _KIB
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_bytes: int = 0
    max_filter_message_size: int = 16_000
    max_msgs_num_batch: int = 64
    waiters_max: int = 100_000
    pending_puts_max: int = 10_000
    dedupe_window_count: int = 0
    dedupe_window_ms: int = 600_000
    sync_flush_timeout_ms: int = 5_000
    dispatch_size_bytes: int = 4 * _MIB
    flush_interval_commit_log_ms: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval_ms: int = 10_000
    flush_interval_consume_queue_ms: int = 1_000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval_ms: int = 60_000
    redispatch_max_bytes: int = 256 * _MIB
    checkpoint_interval_ms: int = 1_000
    clean_resource_interval_ms: int = 10_000
    delete_when: tuple[int, ...] = (4,)
    file_reserved_time: int = 72
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = True
    delete_file_batch_max: int = 10
    archive_mark: str = ""
    archive_log: str = ""

    def __post_init__(self) -> None:
        """Check the values and the relations between them."""
        assert self.mapped_file_size_consume_queue % _QUEUE_UNIT_SIZE == 0, self.mapped_file_size_consume_queue
        assert self.max_hash_slot_num > 0, self.max_hash_slot_num
        assert self.max_index_num > 1, self.max_index_num
        assert all(0 <= hour < 24 for hour in self.delete_when), self.delete_when

    @property
    def retention_rules(self) -> RetentionRules:
        """The rules of retention with these numbers, within RocketMQ's bounds (`CleanCommitLogService`)."""
        force_ratio = _clamped(self.disk_space_clean_forcibly_ratio, 30, 85)
        return RetentionRules(
            reserved_s=max(self.file_reserved_time, 1) * HOUR_S,
            delete_when=self.delete_when,
            expire_ratio=_clamped(self.disk_max_used_space_ratio, 10, 95),
            force_ratio=force_ratio if self.clean_file_forcibly_enable else None,
            full_ratio=_clamped(self.disk_space_warning_level_ratio, 35, 90),
        )


def _clamped(percent: int, low: int, high: int) -> float:
    return min(max(percent, low), high) / _PERCENT
