"""The clients of messages: `Producer` and `Consumer`, and the routes, calls and outcomes that both use.

`producer` sends, `consumer` reads and keeps the progress of its group, `routing` knows the brokers. It imports no
server. The command line, the bench and the API of `cluster` import it.
"""
