"""Requests about the broker itself: its numbers, its settings, and its replication.

Tools stop at the first number of 28 that is missing, so all that one of them reads are there; what this broker does not
have, such as thread pools, is 0. Source: RocketMQ `AdminBrokerProcessor.prepareRuntimeInfo`, `ClusterListSubCommand`,
and `MetricsCollectTask` of the exporter.
"""

# ruff: noqa: ARG001, ARG002  (every handler gets the request and the client)
from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from cluster.remoting.admin.answers import answer, compact, data_version
from cluster.remoting.admin.statistics import RATE_SPANS_S
from cluster.remoting.command import Response
from store.errors import StoreError
from store.model.topics import DELAY_LEVEL_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.broker.core import BrokerCore
    from cluster.remoting.admin.statistics import AdminStatistics
    from cluster.remoting.command import Request
    from cluster.remoting.front import Handler, RemotingClient

VERSION_NAME: Final = "V5_3_3"
VERSION: Final = 479
_NO: Final = "0"
_RATES_OF_NOTHING: Final = "0.0 0.0 0.0"
_POOLS: Final = ("send", "pull", "query", "litePull", "ack", "transaction")
# What RocketMQ has and this broker has not: the value that says so.
_ABSENT: Final = {
    **{f"{pool}ThreadPoolQueueSize": _NO for pool in _POOLS},
    **{f"{pool}ThreadPoolQueueCapacity": _NO for pool in _POOLS},
    **{f"{pool}ThreadPoolQueueHeadWaitTimeMills": _NO for pool in _POOLS},
    "pageCacheLockTimeMills": _NO,
    "timerReadBehind": _NO,
    "timerOffsetBehind": _NO,
    "timerCongestNum": _NO,
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
    "remainHowManyDataToFlush": "0 B",
    "remainTransientStoreBufferNumbs": "2147483647",
    "dispatchMaxBuffer": _NO,
    "getMessageEntireTimeMax": _NO,
    "putMessageEntireTimeMax": _NO,
    "putLatency99": _NO,
    "putLatency999": _NO,
    "getTransferredTps": _RATES_OF_NOTHING,
    "getMissTps": _RATES_OF_NOTHING,
    "getTotalTps": _RATES_OF_NOTHING,
    "getFoundTps": _RATES_OF_NOTHING,
}
_DISTRIBUTION: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
# Requests that have nothing to do here: retention deletes files and queues by itself.
_NOTHING_TO_DO: Final = (306, 316, 329)


class AdminRuntime:
    """Handlers of requests about the broker.

    Args:
        core: of this node.
        statistics: of the broker.
        store_path: the directory of the node's log.
        listen_port: of the remoting protocol.
    """

    def __init__(self, core: BrokerCore, statistics: AdminStatistics, store_path: str, listen_port: int) -> None:
        self._core = core
        self._statistics = statistics
        self._store_path = store_path
        self._listen_port = listen_port
        self._began_ms = core.clock_ms()

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request codes."""
        handlers: dict[int, Handler] = dict.fromkeys(_NOTHING_TO_DO, _done)
        return handlers | {26: self._settings, 28: self._numbers, 907: self._replication, 2003: _cold_reads}

    # --------------------------------------------------------------------------------------------------- numbers

    async def _numbers(self, request: Request, client: RemotingClient) -> Response:
        table = {**_ABSENT, **self._identity(), **self._log_numbers(), **await self._put_numbers()}
        return answer({"table": dict(sorted(table.items()))})

    def _identity(self) -> dict[str, str]:
        now_ms, status = self._core.clock_ms(), self._core.replica.status()
        seconds = (now_ms - self._began_ms) // 1_000
        days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
        return {
            "bootTimestamp": str(self._began_ms),
            "startAcceptSendRequestTimeStamp": str(self._began_ms),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]",
            "brokerActive": "true" if status.is_leading else "false",
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "commercialSize": _NO,
            "role": status.role,
            "term": str(status.term),
        }

    def _log_numbers(self) -> dict[str, str]:
        store = self._core.replica.store
        ratio = str(self._core.replica.disk_used_ratio())
        usage = shutil.disk_usage(self._store_path)
        return {
            "commitLogMinOffset": str(store.log.begin_offset),
            "commitLogMaxOffset": str(store.log.end_offset),
            "dispatchBehindBytes": str(store.derived.dispatcher.behind_bytes),
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
            f"commitLogDiskRatio_{self._store_path}": ratio,
            "commitLogDirCapacity": f"Total : {_gib(usage.total)}, Free : {_gib(usage.free)}.",
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            **self._delay_offsets(),
        }

    def _earliest_ms(self) -> int:
        log = self._core.replica.store.log
        try:
            first = log.find(log.begin_offset)
        except StoreError:
            return -1
        return -1 if first is None else first.store_timestamp

    def _delay_offsets(self) -> dict[str, str]:
        state, store = self._core.replica.state, self._core.replica.store
        delivered = state.delay_offsets
        found = {}
        for level in range(1, len(DELAY_LEVEL_NAMES) + 1):
            end = store.max_offset("SCHEDULE_TOPIC_XXXX", level - 1)
            found[f"scheduleMessageOffset_{level}"] = f"{delivered.get(level, 0)},{end}"
        return found

    async def _put_numbers(self) -> dict[str, str]:
        messages = await self._statistics.messages()
        yesterday, today = await self._statistics.mornings()
        counts, rates = self._core.metrics.counts, self._statistics.rates
        mean = counts.put_bytes / counts.put_messages if counts.put_messages else 0.0
        return {
            "putTps": " ".join(str(rates.per_second(span)) for span in RATE_SPANS_S),
            "msgPutTotalYesterdayMorning": str(yesterday),
            "msgPutTotalTodayMorning": str(today),
            "msgPutTotalTodayNow": str(messages),
            "msgGetTotalYesterdayMorning": _NO,
            "msgGetTotalTodayMorning": _NO,
            "msgGetTotalTodayNow": str(counts.get_messages),
            "putMessageTimesTotal": str(counts.put_messages),
            "putMessageSizeTotal": str(counts.put_bytes),
            "putMessageAverageSize": str(mean),
            "putMessageDistributeTime": " ".join(f"{each}:0" for each in _DISTRIBUTION),
        }

    # --------------------------------------------------------------------------------- settings and replication

    async def _settings(self, request: Request, client: RemotingClient) -> Response:
        options = self._core.options
        settings: Mapping[str, str] = {
            "autoCreateSubscriptionGroup": _flag(is_so=options.auto_create_subscription_group),
            "autoCreateTopicEnable": _flag(is_so=options.auto_create_topic_enable),
            "brokerClusterName": options.cluster,
            "brokerId": _NO,
            "brokerName": options.broker,
            "brokerRole": "SYNC_MASTER" if self._core.replica.status().is_leading else "SLAVE",
            "defaultTopicQueueNums": str(options.default_topic_queue_nums),
            "flushDiskType": "SYNC_FLUSH",
            "listenPort": str(self._listen_port),
            "messageDelayLevel": " ".join(DELAY_LEVEL_NAMES),
            "storePathRootDir": self._store_path,
            "timerMaxDelaySec": str(options.timer_max_delay_sec),
            "traceTopicEnable": _flag(is_so=options.trace_topic_enable),
        }
        body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
        return Response(fields={"version": compact(data_version(self._core))}, body=body)

    async def _replication(self, request: Request, client: RemotingClient) -> Response:
        """Answer without connections to slaves: the log of a Raft group is replicated by its own protocol."""
        own = ("lastReadTimestamp", "lastWriteTimestamp", "masterFlushOffset", "maxOffset", "transferredByteInSecond")
        return answer(
            {
                "haClientRuntimeInfo": dict.fromkeys(own, 0),
                "haConnectionInfo": [],
                "inSyncSlaveNums": 0,
                "master": self._core.replica.status().is_leading,
                "masterCommitLogMaxOffset": self._core.replica.store.log.end_offset,
            }
        )


async def _done(request: Request, client: RemotingClient) -> Response:
    return Response()


async def _cold_reads(request: Request, client: RemotingClient) -> Response:
    no_limit = {"cgColdReadThreshold": 0, "configTable": {}, "globalAcc": 0, "globalColdReadThreshold": 0}
    return answer(no_limit | {"runtimeTable": {}})


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"


def _flag(*, is_so: bool) -> str:
    return "true" if is_so else "false"
