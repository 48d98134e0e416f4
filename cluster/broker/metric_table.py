"""All metrics of a broker: name, kind, meaning, and the label of those that have one besides `broker` and `self_id`.

Their values are in `cluster.broker.metrics`; docs/operations.md describes each.
"""

from __future__ import annotations

from typing import Final

from dledger.metrics import MetricKind, Row

TABLE: Final = (
    Row("dledger_broker_puts", MetricKind.COUNTER, "Completed requests to put, by status.", "status"),
    Row("dledger_broker_put_messages", MetricKind.COUNTER, "Messages put."),
    Row("dledger_broker_put_bytes", MetricKind.COUNTER, "Bytes of bodies put."),
    Row("dledger_broker_put_repeated", MetricKind.COUNTER, "Messages recognised as duplicates of earlier puts."),
    Row("dledger_broker_gets", MetricKind.COUNTER, "Answers to Get, by status.", "status"),
    Row("dledger_broker_get_messages", MetricKind.COUNTER, "Messages delivered by Get and Subscribe."),
    Row("dledger_broker_get_bytes", MetricKind.COUNTER, "Bytes of records delivered by Get and Subscribe."),
    Row(
        "dledger_broker_skipped_messages",
        MetricKind.COUNTER,
        "Messages reported to readers as skipped instead of delivered, by cause; counted once for each read.",
        "cause",
    ),
    Row("dledger_broker_refusals", MetricKind.COUNTER, "Requests refused, by reason.", "reason"),
    Row("dledger_broker_quota_refused", MetricKind.COUNTER, "Requests refused because a quota was used up."),
    Row(
        "dledger_broker_limited",
        MetricKind.COUNTER,
        "Requests refused, or responses of streams delayed, by a limit of a topic, a group or the broker, by limit.",
        "limit",
    ),
    Row("dledger_broker_audit_records", MetricKind.COUNTER, "Records written to the audit log, by kind.", "kind"),
    Row("dledger_broker_audit_lost", MetricKind.COUNTER, "Records that the audit log lost, by kind.", "kind"),
    Row(
        "dledger_broker_audit_summarized",
        MetricKind.COUNTER,
        "Records without a line of their own: counted in summaries of the audit log, by kind.",
        "kind",
    ),
    Row(
        "dledger_broker_audit_oldest_record_age_seconds",
        MetricKind.GAUGE,
        "Age of the oldest record of the audit log, by series of files.",
        "series",
    ),
    Row(
        "dledger_broker_put_latency_seconds", MetricKind.HISTOGRAM, "Time from the arrival of a put to its completion."
    ),
    Row("dledger_broker_put_batch_messages", MetricKind.HISTOGRAM, "Messages per request to put."),
    Row("dledger_broker_flush_latency_seconds", MetricKind.HISTOGRAM, "Duration of one sync of a plain log."),
    Row("dledger_broker_dispatch_behind_bytes", MetricKind.GAUGE, "Bytes of the log that are not dispatched yet."),
    Row("dledger_broker_dispatched_messages", MetricKind.COUNTER, "Messages dispatched."),
    Row(
        "dledger_broker_delayed_delivered", MetricKind.COUNTER, "Delayed messages copied to their topics, by this node."
    ),
    Row(
        "dledger_broker_delayed_not_delivered",
        MetricKind.COUNTER,
        "Delayed messages that could not be copied, by reason; they stay in the queue where they waited.",
        "reason",
    ),
    Row(
        "dledger_broker_delayed_lateness_seconds",
        MetricKind.HISTOGRAM,
        "Time from when a delayed message was due to the put of its copy.",
    ),
    Row("dledger_broker_timers_waiting", MetricKind.GAUGE, "Messages that wait for a time of their own."),
    Row(
        "dledger_broker_timers_put_again",
        MetricKind.COUNTER,
        "Messages put again before their time, by this node, because the log will delete their records.",
    ),
    Row(
        "dledger_broker_delayed_put_again",
        MetricKind.COUNTER,
        "Messages of delay levels put again before their time, by this node, as the log will delete their records.",
    ),
    Row(
        "dledger_broker_halves_put_again",
        MetricKind.COUNTER,
        "Half messages put again by this node, because the log will delete their records.",
    ),
    Row(
        "dledger_broker_compacted_messages",
        MetricKind.GAUGE,
        "Messages in the indexes of compacted topics: the latest of each key.",
    ),
    Row(
        "dledger_broker_compaction_behind_bytes",
        MetricKind.GAUGE,
        "Bytes of the log that were not read for compacted topics yet; 0 without such topics.",
    ),
    Row(
        "dledger_broker_compaction_copied",
        MetricKind.COUNTER,
        "Messages of compacted topics copied by this node, because the log will delete their records.",
    ),
    Row(
        "dledger_broker_returned_messages",
        MetricKind.COUNTER,
        "Messages that consumers returned and this node copied, by destination: retry, dead_letter.",
        "destination",
    ),
    Row(
        "dledger_broker_dead_letters",
        MetricKind.COUNTER,
        "Messages that this node moved to the dead letters, by group; after the first 100 groups: (other).",
        "group",
    ),
    Row("dledger_broker_transactions_open", MetricKind.GAUGE, "Transactions that are not ended."),
    Row("dledger_broker_transaction_producers", MetricKind.GAUGE, "Producers that can be asked about transactions."),
    Row(
        "dledger_broker_transactions_ended",
        MetricKind.COUNTER,
        "Transactions ended by this node: committed, rolled_back or given_up.",
        "end",
    ),
    Row("dledger_broker_transaction_checks", MetricKind.COUNTER, "Questions to producers about transactions."),
    Row("dledger_broker_pop_in_flight", MetricKind.GAUGE, "Messages taken by pop consumers and not done."),
    Row("dledger_broker_pop_taken", MetricKind.COUNTER, "Messages given to pop consumers, by this node."),
    Row("dledger_broker_pop_redelivered", MetricKind.COUNTER, "Those of them that had been given before."),
    Row("dledger_broker_pop_acknowledged", MetricKind.COUNTER, "Messages acknowledged by pop consumers at this node."),
    Row(
        "dledger_broker_pop_stale",
        MetricKind.COUNTER,
        "Handles refused because another consumer had the message, or the offset was reset.",
    ),
    Row("dledger_broker_pop_dead", MetricKind.COUNTER, "Messages of pop consumers that this node put to dead letters."),
    Row(
        "dledger_broker_pop_moved",
        MetricKind.COUNTER,
        "Old messages of pop consumers that this node put to their retry topic.",
    ),
    Row(
        "dledger_broker_pop_lost", MetricKind.COUNTER, "Messages that retention deleted before they were acknowledged."
    ),
    Row(
        "dledger_broker_feature_level",
        MetricKind.GAUGE,
        "Feature level of the group: the kinds of entries that it may write.",
    ),
    Row(
        "dledger_broker_unfit_effects",
        MetricKind.COUNTER,
        "Effects of records that did not fit the broker state and changed nothing; each is a defect.",
    ),
    Row(
        "dledger_broker_spans",
        MetricKind.COUNTER,
        "Spans of OpenTelemetry, by outcome: exported, failed, dropped (too many wait), left_out (of one request).",
        "outcome",
    ),
    Row("dledger_broker_long_polls", MetricKind.GAUGE, "Readers waiting for a message."),
    Row("dledger_broker_subscribe_streams", MetricKind.GAUGE, "Open Subscribe streams."),
    Row("dledger_broker_group_members", MetricKind.GAUGE, "Consumers that are members of a group."),
    Row("dledger_broker_queues", MetricKind.GAUGE, "Consume queues."),
    Row("dledger_broker_topics", MetricKind.GAUGE, "Topics."),
    Row("dledger_broker_groups", MetricKind.GAUGE, "Groups."),
    Row("dledger_broker_min_physical_offset", MetricKind.GAUGE, "Start of the log, in bytes."),
    Row("dledger_broker_max_physical_offset", MetricKind.GAUGE, "End of the readable log, in bytes."),
    Row("dledger_broker_disk_used_ratio", MetricKind.GAUGE, "Used share of the store's disk, from 0 to 1."),
    Row("dledger_broker_serving_puts", MetricKind.GAUGE, "1 while this node accepts puts."),
    Row(
        "dledger_broker_not_ready_bytes",
        MetricKind.GAUGE,
        "Bytes that a new leader must dispatch before it accepts puts.",
    ),
    Row(
        "dledger_broker_divided_offset",
        MetricKind.GAUGE,
        "End of the base log, in bytes, where replicated entries begin (the divide); -1: none.",
    ),
)
