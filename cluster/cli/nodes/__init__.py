"""Commands that run nodes and brokers or show their state: server, broker, status, top, members, append, context.

Each module has one command or one group of commands, which `cluster.cli.loading` imports when it is called.
"""
