"""Broker state: topics, groups and offsets, the commands that change them, and their snapshots.

The state is deterministic: every replica applies the same commands in the same order and gets the same bytes. The
package uses no network, no clock and no files, except that `rocketmq_config` reads RocketMQ's files. Replicas, brokers
and services import it.
"""
