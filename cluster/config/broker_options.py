"""The options of a broker's node: name, type, range, default and meaning.

Names are RocketMQ's (`BrokerConfig`, `MessageStoreConfig`) in snake_case, if it has them. Options that a log of entries
already has under another name, such as retention, are not repeated.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from cluster.config.options import NodeOptions
from cluster.config.quotas import BrokerLimits
from cluster.config.security_options import SecurityOptions
from cluster.config.values import (
    parse_address_or_off,
    parse_addresses,
    parse_broker,
    parse_collector,
    parse_group,
    parse_peers_if_any,
)
from cluster.protocol.topic_config import DEFAULT_TOPIC_QUEUES, QUEUES_MAX
from dledger.config import Address, Peer  # noqa: TC001  (pydantic reads the annotation)
from store.model.config import MessageStoreConfig

_STORE = MessageStoreConfig()
_LIMITS = BrokerLimits()
_MIB = 1 << 20
_GIB = 1 << 30
_HOUR_MS = 3_600_000
# Limits of one answer; RocketMQ's own defaults are for small answers.
TRANSFER_BYTES = 4 * _MIB
TRANSFER_COUNT = 32_767
DEDUPE_COUNT = 200_000
MetricsNames = Literal["dledger", "rocketmq", "both"]


# pydantic orders options by the last base first: `--help-config` begins with those of a node.
class ServerOptions(SecurityOptions, NodeOptions):
    """The options of a node, with those of its security and of a broker's node."""

    broker: Annotated[str, BeforeValidator(parse_broker)] = Field(
        default="",
        description="Name of the broker that the group forms: its log contains messages in topics and queues, and "
        "clients use BrokerService. Equal on all nodes; the default of group. Empty: a log of raw entries. A store of "
        "RocketMQ, or of `dledger broker --standalone`, in store_base_dir is converted in place. Not read from the "
        "environment, where DLEDGER_BROKER has addresses for clients; a name in it is refused.",
    )
    cluster: Annotated[str, BeforeValidator(parse_group)] = Field(
        default="DefaultCluster", description="Name of the cluster, common to the brokers of one installation."
    )
    name_servers: Annotated[str, BeforeValidator(parse_addresses)] = Field(
        default="",
        description="Name servers with which the leader registers the broker: host:port, separated by commas; empty: "
        "none. Not read from the environment, where DLEDGER_NAME_SERVERS is for clients.",
    )
    name_server_tls: Literal["off", "on"] = Field(
        default="off",
        description="on: connections to name servers use TLS with the certificate of this node, which must name the "
        "broker and self_id, and trust tls_authority_file. Needed with client_tls. Equal on all name servers; see "
        "`dledger nameserver --plain-listen` for a change.",
    )
    rocketmq_grpc_address: Annotated[Address | None, BeforeValidator(parse_address_or_off)] = Field(
        default=None,
        examples=["127.0.0.1:8081"],
        description="Address at which official clients of RocketMQ 5 reach this node (gRPC, "
        "apache.rocketmq.v2.MessagingService). Any node serves them. It has no TLS yet, so it "
        "needs client_tls = off. While the broker has users, clients sign with access keys. "
        "Usually the host of client_address and port 8081. off: there is no such port.",
    )
    rocketmq_remoting_address: Annotated[Address | None, BeforeValidator(parse_address_or_off)] = Field(
        default=None,
        examples=["127.0.0.1:10911"],
        description="Address at which clients and tools of RocketMQ's remoting protocol (4.x and 5.x) reach this node. "
        "It has no TLS yet, so it needs client_tls = off; while the broker has users, clients sign with access keys. "
        "off: there is no such port.",
    )
    rocketmq_remoting_peers: Annotated[tuple[Peer, ...], BeforeValidator(parse_peers_if_any)] = Field(
        default=(),
        examples=["n0-10.0.0.1:10911;n1-10.0.0.2:10911;n2-10.0.0.3:10911"],
        description="Where clients reach rocketmq_remoting_address of each node, in the form of peers; equal on all "
        "nodes. Empty: the hosts of peers, and the port of this node.",
    )
    auto_create_topic_enable: bool = Field(default=False, description="true: a put to an unknown topic creates it.")
    default_topic_queue_nums: int = Field(
        default=DEFAULT_TOPIC_QUEUES, ge=1, le=QUEUES_MAX, description="Queues of an automatically created topic."
    )
    auto_create_subscription_group: bool = Field(
        default=True, description="false: a consumer group must be created before it consumes."
    )
    first_user_file: str = Field(
        default="",
        description="File with the first user (`dledger user first` creates it): while the broker has no user, its "
        "leader creates this one. If set, every call needs a token, or a certificate of a user. Empty: access control "
        "is off until there is a user.",
    )
    access_lag_max_s: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="A node that has known no leader for this many seconds refuses calls of users: their rights may "
        "have been revoked meanwhile. Clients then ask another node. 0: it serves local reads for any time.",
    )
    timer_max_delay_sec: int = Field(
        default=259_200,
        ge=1,
        le=3_456_000,
        description="Longest time until the delivery of a message with a time of its own, in seconds; 40 days at most.",
    )
    transaction_timeout_ms: int = Field(
        default=6_000,
        ge=1,
        le=_HOUR_MS,
        description="Milliseconds after the put of a half message until its producers are asked what has become of the "
        "transaction, unless the message has its own time ...",
    )
    transaction_check_interval_ms: int = Field(
        default=30_000, ge=1, le=_HOUR_MS, description="... and until they are asked again ..."
    )
    transaction_check_max: int = Field(
        default=15,
        ge=0,
        le=255,
        description="... and times after which the transaction is given up: the message is copied to "
        "TRANS_CHECK_MAX_TIME_TOPIC.",
    )
    compaction_schedule_internal: int = Field(
        default=900_000,
        ge=1_000,
        le=24 * _HOUR_MS,
        description="Milliseconds between two compactions of compacted topics, unless there are many new messages.",
    )
    compaction_keep_tombstones_sec: int = Field(
        default=86_400,
        ge=0,
        le=365 * 86_400,
        description="Seconds for which consumers of a compacted topic can read a message with an empty body, which "
        "removes its key.",
    )
    max_message_size: int = Field(
        default=4 * _MIB,
        ge=1,
        le=4 * _MIB,
        description="Maximum bytes of a message's body. A message with its properties must also fit into one entry.",
    )
    has_property_crc: bool = Field(
        default=False,
        description="true: the base log was written with property CRCs (RocketMQ enabledAppendPropCRC, 5.2 and newer), "
        "which are then checked with its records. New records have none, as in RocketMQ's DLedger.",
    )
    dedupe_window_count: int = Field(
        default=DEDUPE_COUNT,
        ge=0,
        le=100_000_000,
        description="Deduplication: a put with a UNIQ_KEY of one of this many latest messages of the log is answered "
        "with the first result; about 100 bytes of memory each. 0: off.",
    )
    dedupe_window_ms: int = Field(
        default=_STORE.dedupe_window_ms,
        ge=0,
        le=240 * _HOUR_MS,
        description="... and not older than the newest by more than this, in milliseconds.",
    )
    mapped_file_size_consume_queue: int = Field(
        default=_STORE.mapped_file_size_consume_queue,
        ge=20,
        le=_GIB,
        multiple_of=20,
        description="Size of a file of a consume queue in bytes, 20 for each message. Fixed for the life of the data.",
    )
    message_index_enable: bool = Field(
        default=_STORE.message_index_enable, description="false: no key is indexed; queries by key find nothing."
    )
    max_hash_slot_num: int = Field(
        default=_STORE.max_hash_slot_num,
        ge=1,
        le=1 << 30,
        description="Slots of a file of the key index, 4 bytes each. Fixed for the life of the data.",
    )
    max_index_num: int = Field(
        default=_STORE.max_index_num,
        ge=2,
        le=1 << 30,
        description="Items of a file of the key index, 20 bytes each. Fixed for the life of the data.",
    )
    max_transfer_bytes_on_message_in_memory: int = Field(
        default=TRANSFER_BYTES, ge=1024, le=8 * _MIB, description="Maximum bytes of one answer to a reader ..."
    )
    max_transfer_count_on_message_in_memory: int = Field(
        default=TRANSFER_COUNT, ge=1, le=1_000_000, description="... and messages."
    )
    max_transfer_bytes_on_message_in_disk: int = Field(
        default=TRANSFER_BYTES,
        ge=1024,
        le=8 * _MIB,
        description="The same for old messages, which are likely not in the page cache.",
    )
    max_transfer_count_on_message_in_disk: int = Field(
        default=TRANSFER_COUNT, ge=1, le=1_000_000, description="... and messages."
    )
    access_message_in_memory_max_bytes: int = Field(
        default=_STORE.access_message_in_memory_max_bytes,
        ge=0,
        le=1024 * _GIB,
        description="This many bytes at the end of the log count as being in memory; 0: 40 % of the machine's.",
    )
    max_filter_message_size: int = Field(
        default=_STORE.max_filter_message_size,
        ge=20,
        le=_GIB,
        description="Minimum bytes of queue units that one read by tag examines.",
    )
    max_msgs_num_batch: int = Field(
        default=_STORE.max_msgs_num_batch,
        ge=1,
        le=10_000,
        description="Maximum messages in the answer to a query by key.",
    )
    waiters_max: int = Field(
        default=_STORE.waiters_max, ge=1, le=10_000_000, description="Maximum number of waiting readers."
    )
    topic_waits_max: int = Field(
        default=_LIMITS.topic_waits_max,
        ge=1,
        le=10_000_000,
        description="... of one topic. A stream of many queues waits in each of them, and is counted as a whole.",
    )
    group_waits_max: int = Field(
        default=_LIMITS.group_waits_max, ge=1, le=10_000_000, description="... of one consumer group."
    )
    group_streams_max: int = Field(
        default=_LIMITS.group_streams_max,
        ge=1,
        le=1_024,
        description="Maximum number of streams (Subscribe) of one consumer group; a node has 1,024 in all.",
    )
    topics_max: int = Field(
        default=_LIMITS.topics_max,
        ge=1,
        le=_LIMITS.topics_max,
        description="No more topics are created, by request or by a put. Equal on all nodes.",
    )
    groups_max: int = Field(
        default=_LIMITS.groups_max,
        ge=1,
        le=_LIMITS.groups_max,
        description="No more consumer groups are created, by request or by a consumer. Equal on all nodes.",
    )
    quota_creations_per_min: int = Field(
        default=_LIMITS.quota_creations_per_min,
        ge=0,
        description="Topics and groups that one user, or one address without users, creates in a minute, by request or "
        "by use; more are refused with OVER_QUOTA. 0: no limit. Equal on all nodes.",
    )
    dispatch_size_bytes: int = Field(
        default=_STORE.dispatch_size_bytes,
        ge=4096,
        le=_GIB,
        description="Bytes of the log that are added to queues and index in one step.",
    )
    flush_interval_consume_queue_ms: int = Field(
        default=_STORE.flush_interval_consume_queue_ms,
        ge=10,
        le=_HOUR_MS,
        description="Interval of syncs of queues in milliseconds, which bounds the work of a start after a crash ...",
    )
    flush_consume_queue_least_pages: int = Field(
        default=_STORE.flush_consume_queue_least_pages,
        ge=0,
        le=1 << 20,
        description="... unless fewer pages of 4 KiB wait in a queue ...",
    )
    flush_consume_queue_thorough_interval_ms: int = Field(
        default=_STORE.flush_consume_queue_thorough_interval_ms,
        ge=10,
        le=24 * _HOUR_MS,
        description="... and after this many milliseconds all of them are written, with the key index ...",
    )
    redispatch_max_bytes: int = Field(
        default=_STORE.redispatch_max_bytes,
        ge=4096,
        le=1024 * _GIB,
        description="... or as soon as this many bytes of the log would have to be dispatched again after a crash.",
    )
    trace_topic_enable: bool = Field(
        default=False,
        description="true: the leader creates the topic RMQ_SYS_TRACE_TOPIC, with one queue, to which clients with "
        "message trace write what happened to each message.",
    )
    otlp_endpoint: Annotated[str, BeforeValidator(parse_collector)] = Field(
        default="",
        description="URL of a collector of OpenTelemetry, such as http://127.0.0.1:4318, to which spans of puts are "
        "exported by OTLP over HTTP; needs the extra `otel`. Only traces that callers record are continued. Empty: "
        "nothing is traced.",
    )
    metrics_names: MetricsNames = Field(
        default="dledger",
        description="Names of a broker's metrics: dledger_broker_*, those of RocketMQ 5 (rocketmq_*, by topic and "
        "group), or both.",
    )
    archive_mark: str = Field(
        default="",
        description="File with the offset up to which the broker's log is archived (`dledger spark archive` writes it, "
        "below _archived/ of the lake, under the broker's name): unarchived files are never deleted, even if the disk "
        "is full. Empty: there is no archive.",
    )


_OF_ALL_NODES = {*NodeOptions.model_fields, *SecurityOptions.model_fields}
BROKER_OPTIONS = tuple(name for name in ServerOptions.model_fields if name not in _OF_ALL_NODES)
