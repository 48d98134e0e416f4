"""Commands for messages: produce, consume, query, topics, groups, brokers.

`cluster.cli.targets` and `cluster.cli.client_target` select the brokers of a command. Each module is imported when its
command is called.
"""
