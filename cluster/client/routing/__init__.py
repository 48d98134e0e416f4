"""Broker discovery: routes from name servers or brokers, the leader of each broker, connections, queue choice.

Producer, consumer, command line and pipeline import it; it imports none of them.
"""
