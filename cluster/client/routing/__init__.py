"""Finding brokers: routes from name servers or brokers, the leader of each broker, connections, queues.

Producer, consumer, command line and pipeline import it; it knows none of them.
"""
