"""What waits in a store that a RocketMQ broker left: delayed messages, messages for a time, half messages.

RocketMQ notes its progress in files beside the log, each some seconds late, and marks nothing in the records. So what
waits is derived once, when the store is taken over, from the queues of the broker's own topics, from these files, and
from the records in the log that show a delivery or an end.

Nothing that may wait is left out. A message that RocketMQ has delivered is delivered again only if no record shows it.
"""
