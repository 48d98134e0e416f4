"""Calls about messages that wait, or are taken: delays, recall, retries, transactions, pop consumption.

Each module is a group of methods of `cluster.api.broker_service`. What is due, and what becomes of it, is decided in
`cluster.delivery`, `cluster.retries` and `cluster.pop`.
"""
