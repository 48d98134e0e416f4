"""Message trace: clients record what happened to each message in a topic of the broker, in RocketMQ's format.

`trace_records` has the format, `trace_batches` the bounded queue of a client; `trace_sender` sends it in the
background. Producer and consumer import this package, which imports neither.
"""
