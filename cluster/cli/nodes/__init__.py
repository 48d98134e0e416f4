"""Commands that run nodes and brokers or ask about them: server, broker, status, top, members, append, context.

Each command module holds one command or one group of commands, which `cluster.cli.loading` imports when it is called.
Only commands import it.
"""
