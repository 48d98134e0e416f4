"""The pop consumer: takes messages of any queue, and acknowledges each by its handle; it owns no queues.

`message` has its messages, `async_consumer` the asyncio interface, `consumer` both interfaces as `PopConsumer`.
"""
