"""The log of RocketMQ messages: records, the plain log, the replicated log, and the conversion between the two."""
