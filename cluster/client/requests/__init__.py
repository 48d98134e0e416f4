"""Requests that wait for a reply: messages to a topic, and the reply topic that the requester reads.

Applications import `Requester` from `cluster`. It uses a producer and a consumer; replies are sent by
`Producer.reply`.
"""
