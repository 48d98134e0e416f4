"""Messages that consumers return because they failed to process them: retries, and dead letters in the end.

`cluster.protocol.retry_policy` has the delays between attempts, `rule` decides where a returned message goes, `copies` makes the copy, and
`returning` puts it once. No wire format; `cluster.api` imports it.
"""
