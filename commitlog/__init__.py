"""The log of RocketMQ messages: records, the plain log, the replicated log, and the conversion between the two.

It implements the log ports of `store.model`, on files (`plain`) or on a Raft group (`replicated`). Queues, indexes and
queries are in `store`, consensus is in `dledger`, brokers are in `cluster`. `cluster` and `pipeline` import it.
"""
