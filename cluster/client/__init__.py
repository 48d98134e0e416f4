"""The message clients: `Producer` and `Consumer`, and the routes, calls and outcomes that both use.

`producer` sends messages, `consumer` reads them and stores the group's offsets, `routing` finds brokers and their
leaders. The package imports no server code. The command line, the bench and the API of `cluster` import it.
"""
