"""Commands for messages: produce, consume, query, topics, groups, brokers.

Which brokers a command talks to is decided in `cluster.cli.targets` and `cluster.cli.client_target`. Each module is
imported when its command is called. Only commands import it.
"""
