"""Runs our Java program (tests/interop/java), with RocketMQ's own DefaultMessageStore, and with its whole broker."""

import base64
import json
import subprocess
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from tests.interop.puts import IPV4_STORE, PROPERTY_CRC_SIZE, Place, host_text, size_of

_TIMEOUT_S = 240


@dataclass(frozen=True)
class Sizes:
    """Sizes of a store's files, small so that they roll; the same for both programs."""

    log_file: int = 65536
    queue_file: int = 1000
    index_slots: int = 100
    index_items: int = 2000

    def as_java(self):
        return {
            "mappedFileSizeCommitLog": self.log_file,
            "mappedFileSizeConsumeQueue": self.queue_file,
            "maxHashSlotNum": self.index_slots,
            "maxIndexNum": self.index_items,
        }


SMALL = Sizes()


@dataclass(frozen=True)
class Contents:
    """What Java read: a line of the manifest a message in the order of the log, and a summary."""

    lines: list
    summary: dict

    @property
    def queues(self):
        return {(q["topic"], q["queueId"]): (q["min"], q["max"]) for q in self.summary["queues"]}


class JavaProgram:
    """The program.

    Args:
        jar: its file.
        folder: for the files that it is given.
    """

    def __init__(self, jar, folder):
        self._jar = jar
        self._folder = folder

    def read(self, directory, sizes=SMALL, *, node_id="", in_place=False, **config):
        """Read a store in all ways: a copy of it, or the store itself, which is then shut down cleanly."""
        options = ["--no-copy"] if in_place else []
        *lines, summary = self._run("read", directory, sizes, node_id, options, config)
        assert summary.pop("summary") is True
        return Contents(lines, summary)

    def write(
        self,
        directory,
        puts,
        sizes=SMALL,
        *,
        store_host=IPV4_STORE,
        node_id="",
        is_halted=False,
        has_property_crc=False,
    ):
        """Put; return the places of all messages."""
        config = {"enabledAppendPropCRC": "true"} if has_property_crc else {}
        file = self._folder / "puts.jsonl"
        file.write_text("".join(json.dumps(_put(put, store_host)) + "\n" for put in puts))
        options = ["--input", str(file), *(["--halt"] if is_halted else [])]
        results = self._run("write", directory, sizes, node_id, options, config)
        # With DLedger each message has an entry of its own, whose header precedes it.
        gap = 48 if node_id else 0
        extra = PROPERTY_CRC_SIZE if has_property_crc else 0
        pairs = zip(puts, results, strict=True)
        return [place for put, result in pairs for place in _places(put, result, store_host, gap, extra)]

    def wait(self, directory, sizes=SMALL, *, is_halted=False):
        """Run a whole broker that leaves messages that wait (`tests.support.brokers.java_waiting`).

        Returns: the messages that were sent, in their order: body, uniqKey, queueOffset, physicalOffset.
        """
        return self._run("waiting", directory, sizes, "", ["--halt"] if is_halted else [], {})

    def _run(self, command, directory, sizes, node_id, options, config):
        for name, value in {**sizes.as_java(), **config}.items():
            options += ["--config", f"{name}={value}"]
        if node_id:
            options += ["--dledger", node_id]
        with TemporaryDirectory(dir=self._folder) as scratch:
            # Logs go below user.home, copies into the other one: both are in use until the process has ended.
            places = [f"-Duser.home={scratch}", f"-Djava.io.tmpdir={scratch}"]
            done = subprocess.run(
                ["java", "-Xmx1g", *places, "-jar", self._jar, command, str(directory), *options],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        assert done.returncode == 0, f"the Java program failed:\n{done.stderr[-4000:]}"
        return [json.loads(line) for line in done.stdout.splitlines()]


def _put(put, store_host):
    return {"storeHost": host_text(store_host), "messages": [_message(message) for message in put.messages]}


def _message(message):
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "body": base64.b64encode(message.body).decode(),
        "properties": list(message.properties.items()),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": host_text(message.born_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }


def _places(put, result, store_host, gap, extra):
    assert result["status"] == "PUT_OK", result
    offset, queue_offset = result["physicalOffset"], result["queueOffset"]
    for number, message in enumerate(put.messages):
        yield Place(offset, queue_offset + number, result["storeTimestamp"])
        offset += size_of(message, store_host) + extra + gap
    assert offset == result["physicalOffset"] + result["size"] + gap * len(put.messages), (result, put)
