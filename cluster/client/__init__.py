"""What clients of messages are made of: routes, choice of queues, batches, compression, groups, offsets, ids.

All of it is pure but `routing.finder`; none of it knows a broker's inside.
"""
