"""Messages that consumers return because they failed to process them: retries, and dead letters in the end.

`rule` decides where a returned message goes, with the delays of `cluster.protocol.retry_policy`; `copies` makes the
copy, and `returning` puts it once. No wire format; `cluster.api` imports it.
"""
