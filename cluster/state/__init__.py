"""Broker state: topics, groups and offsets, the commands that change them, and their snapshots.

Deterministic: every replica applies the same commands in the same order and gets the same bytes. No network, no
clock, no file of its own; `rocketmq_config` reads what RocketMQ kept. Replicas, brokers and services import it.
"""
