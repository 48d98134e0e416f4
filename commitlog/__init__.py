"""The log of RocketMQ messages: records, the plain log, the replicated log, and how one becomes the other."""
