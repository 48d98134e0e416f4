"""Our store without a server: opened with small files; tests put, dispatch, flush and read directly."""

import base64
import shutil

from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from store.fs.linux.files import OsFiles
from store.fs.retention_rules import ClockReading
from store.model.config import MessageStoreConfig
from store.model.message import QueueKey
from tests.interop.java_program import SMALL
from tests.interop.puts import IPV4_STORE, Place, host_text

GET_COUNT = 32


class Clock:
    """A clock that the test sets: milliseconds since 1970."""

    def __init__(self, now_ms=1_700_000_000_000):
        self.now_ms = now_ms

    def __call__(self):
        # In the middle of a millisecond, so that no rounding makes another one of it.
        seconds = (self.now_ms + 0.5) / 1000
        return ClockReading(wall_s=seconds, monotonic_s=seconds, hour=12)


def clock_after(places):
    """Return a clock that is a second earlier than all of Java's timestamps: Java uses the time of the day."""
    return Clock(max(place.store_timestamp for place in places) + 1000)


class OurStore:
    """One open store.

    Attributes:
        places: of all messages that were put, in order.
    """

    def __init__(self, directory, sizes=SMALL, *, store_host=IPV4_STORE, clock=None, has_property_crc=False):
        self.directory = directory
        self.clock = clock or Clock()
        self.places = []
        config = PlainStoreConfig(
            CommitLogConfig(
                mapped_file_size=sizes.log_file,
                is_flush_sync=False,
                store_host=store_host,
                has_property_crc=has_property_crc,
            ),
            MessageStoreConfig(
                mapped_file_size_consume_queue=sizes.queue_file,
                max_hash_slot_num=sizes.index_slots,
                max_index_num=sizes.index_items,
                max_msgs_num_batch=1 << 20,
            ),
        )
        self.plain = open_plain_store(OsFiles(), str(directory), config, clocks=self.clock)
        self.store = self.plain.messages

    def put(self, puts, step_ms=1, *, is_dispatched=True):
        """Put at increasing times, and dispatch; return the places."""
        begin = len(self.places)
        for put in puts:
            outcome = self.store.put_many(put.messages).outcome
            assert outcome.status == "PUT_OK", outcome
            self.places += [Place(p.physical_offset, p.queue_offset, p.store_timestamp) for p in outcome.places]
            self.clock.now_ms += step_ms
        if is_dispatched:
            self.store.dispatch()
        return self.places[begin:]

    def close(self):
        """Close it cleanly."""
        self.plain.close()

    def killed_copy(self, directory):
        """Return a copy as after a kill at this moment: all written data, flushed or not."""
        shutil.copytree(self.directory, directory)
        return directory

    @property
    def queues(self):
        """The start and the end of every queue."""
        keys = list(self.store.derived.queues)
        bounds = {tuple(key): (self.store.min_offset(*key), self.store.max_offset(*key)) for key in keys}
        return {key: (begin, end) for key, (begin, end) in bounds.items() if end}

    def lines(self):
        """Read all messages by physical offset, by queue and by key; return the lines of the manifest.

        The three ways must agree.
        """
        by_offset = {message.physical_offset: message for message in self._walk()}
        codes = dict(self._queue_units(by_offset))
        return [self._line(message, codes.get(offset)) for offset, message in by_offset.items()]

    def _walk(self):
        log = self.plain.log
        offset = log.begin_offset
        while (batch := log.scan(offset, 1 << 16)) is not None:
            assert batch.skipped == ()
            for place in batch.physical_offsets.tolist():
                yield log.find(place)
            offset = batch.next_offset

    def _queue_units(self, by_offset):
        for (topic, queue_id), (begin, end) in self.queues.items():
            offset = begin
            while offset < end:
                found = self.store.get(topic, queue_id, offset, GET_COUNT)
                assert found.status == "FOUND", (topic, queue_id, offset, found)
                _, _, codes = self.store.derived.queues.get(QueueKey(topic, queue_id)).units(
                    offset, len(found.messages)
                )
                for number, message in enumerate(found.messages):
                    assert (message.topic, message.queue_id) == (topic, queue_id)
                    assert message.queue_offset == offset + number
                    assert _bytes_of(message) == _bytes_of(by_offset[message.physical_offset])
                    yield message.physical_offset, int(codes[number])
                offset = found.next_begin_offset

    def _line(self, message, tags_code):
        properties = message.properties
        keys = [key for key in (properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")) if key]
        found = [self._is_found(message, key) for key in keys]
        return {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "physicalOffset": message.physical_offset,
            "size": message.size,
            "inConsumeQueue": tags_code is not None,
            "indexed": all(found),
            "tag": properties.get("TAGS"),
            "tagsCode": tags_code,
            "keys": properties.get("KEYS"),
            "uniqKey": properties.get("UNIQ_KEY"),
            "storeTimestamp": message.store_timestamp,
            "bornTimestamp": message.born_timestamp,
            "bornHost": host_text(message.born_host),
            "storeHost": host_text(message.store_host),
            "msgId": message.message_id,
            "magic": message.magic,
            "flag": message.flag,
            "sysFlag": message.sys_flag,
            "reconsumeTimes": message.reconsume_times,
            "preparedTransactionOffset": message.prepared_transaction_offset,
            "bodyCRC": message.body_crc,
            "body": base64.b64encode(message.body).decode(),
            "properties": dict(sorted(properties.items())),
            "propertiesRaw": base64.b64encode(bytes(message.properties_raw)).decode(),
        }

    def _is_found(self, message, key):
        when = message.store_timestamp
        found = self.store.query_by_key(message.topic, key, 1 << 20, when - 1000, when + 1000).messages
        return message.physical_offset in {m.physical_offset for m in found}


def _bytes_of(message):
    return bytes(message.view[message.position : message.position + message.size])
