"""A client of the front for official clients of RocketMQ 5: the generated stub, with the fields that they send."""

import grpc

from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.rocketmq_v2 import messaging_pb2_grpc
from tests.support.waiting import PATIENCE_S


def resource(name):
    """Return a topic or a group."""
    return mq.Resource(name=name)


def message(topic, message_id, body=b"body", kind=mq.NORMAL, properties=None, **system):
    """Return a message as official clients send it."""
    own = mq.SystemProperties(message_id=message_id, message_type=kind, body_encoding=mq.IDENTITY, **system)
    own.born_timestamp.GetCurrentTime()
    return mq.Message(topic=resource(topic), body=body, user_properties=properties or {}, system_properties=own)


class RocketMQStub:
    """Calls one node's port; `with` closes the connection.

    Args:
        address: of the port.
        client_id: of the client.
        authority: of the port's certificate, in PEM; None: the connection is plain.

    Attributes:
        stub: the generated one.
        metadata: of each call.
    """

    def __init__(self, address, client_id="client-1", authority=None):
        self.address = address
        options = [("grpc.max_receive_message_length", 64 << 20)]
        if authority is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(authority), options)
        self.stub = messaging_pb2_grpc.MessagingServiceStub(self._channel)
        self.metadata = [("x-mq-client-id", client_id), ("x-mq-language", "PYTHON"), ("x-mq-protocol", "GRPC_V2")]

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._channel.close()

    def call(self, name, request, timeout=PATIENCE_S):
        """Return the response of a method."""
        return getattr(self.stub, name)(request, timeout=timeout, metadata=self.metadata)

    def send(self, *messages, timeout=PATIENCE_S):
        """Return the response to a send."""
        return self.call("SendMessage", mq.SendMessageRequest(messages=messages), timeout)

    def sent(self, *messages):
        """Send; return the entry of the answer."""
        response = self.send(*messages)
        assert response.status.code == mq.OK, response
        (entry,) = response.entries
        assert entry.status.code == mq.OK
        return entry

    def responses(self, topic, group="G", *, wait_s=0, count=32, invisible_s=30, timeout=PATIENCE_S, **fields):
        """Return all responses to a receive."""
        request = mq.ReceiveMessageRequest(
            group=resource(group),
            message_queue=mq.MessageQueue(topic=resource(topic)),
            batch_size=count,
            **fields,
        )
        request.invisible_duration.seconds = invisible_s
        request.long_polling_timeout.seconds = wait_s
        return list(self.stub.ReceiveMessage(request, timeout=timeout, metadata=self.metadata))

    def receive(self, topic, group="G", *, wait_s=10, **fields):
        """Return the messages of a receive."""
        responses = self.responses(topic, group, wait_s=wait_s, **fields)
        assert responses[0].status.code in (mq.OK, mq.MESSAGE_NOT_FOUND), responses
        return [each.message for each in responses if each.HasField("message")]

    def ack(self, message, group="G"):
        """Acknowledge a message; return the status."""
        system = message.system_properties
        entry = mq.AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle)
        request = mq.AckMessageRequest(group=resource(group), topic=message.topic, entries=[entry])
        return self.call("AckMessage", request).status
