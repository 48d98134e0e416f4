"""Sends and receives with the official Python client over TLS, with access keys; its interpreter has the packages.

    python python_client_with_keys.py ENDPOINTS TOPIC CASE...

A case is `name,key,secret,push`, or `name,key,secret,` without a push consumer; with an empty key the client has no
credentials. Prints one line of JSON, for each case: the error of a send, that of a receive, what was received and
acknowledged, and the error of the start of a push consumer. The authority that has signed the node's certificate is in
GRPC_DEFAULT_SSL_ROOTS_FILE_PATH.
"""

import json
import os
import sys
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)

LIMIT_S = 60
# By default 3 s, which a busy machine needs for the first call.
REQUEST_TIMEOUT_S = 20


def error_of(action):
    """Return the type and the text of the error of an action; empty: none."""
    try:
        action()
    except Exception as error:  # noqa: BLE001  (whatever the client raises)
        return f"{type(error).__name__}: {error}"
    return ""


def sent(configuration, topic, body):
    """Send a message."""
    producer = Producer(configuration, (topic,), tls_enable=True)
    producer.startup()
    try:
        message = Message()
        message.topic, message.body = topic, body.encode()
        producer.send(message)
    finally:
        producer.shutdown()


def received(configuration, topic, bodies):
    """Receive and acknowledge a message; its body is added to a list."""
    consumer = SimpleConsumer(
        configuration, f"G{topic}", {topic: FilterExpression()}, await_duration=5, tls_enable=True
    )
    consumer.startup()
    try:
        end = time.monotonic() + LIMIT_S
        while not bodies and time.monotonic() < end:
            for message in consumer.receive(32, 30):
                consumer.ack(message)
                bodies.append(message.body.decode())
    finally:
        consumer.shutdown()


class Taking(MessageListener):
    """Processes each message."""

    def consume(self, _message):
        """Process a message."""
        return ConsumeResult.SUCCESS


def pushed(configuration, topic):
    """Start a push consumer, which is not shut down: that waits for its last receive."""
    PushConsumer(configuration, f"P{topic}", Taking(), {topic: FilterExpression()}, tls_enable=True).startup()


def main():
    """Run all cases."""
    endpoints, topic, *cases = sys.argv[1:]
    found = {}
    for case in cases:
        name, key, secret, more = case.split(",")
        credentials = Credentials(key, secret) if key else Credentials()
        configuration = ClientConfiguration(endpoints, credentials, request_timeout=REQUEST_TIMEOUT_S)
        bodies = []
        found[name] = {
            "send": error_of(lambda: sent(configuration, topic, name)),  # noqa: B023  (it is called at once)
            "receive": error_of(lambda: received(configuration, topic, bodies)),  # noqa: B023  (as above)
            "bodies": bodies,
            "push": error_of(lambda: pushed(configuration, topic)) if more == "push" else "",  # noqa: B023  (as above)
        }
    print(json.dumps(found), flush=True)
    # Threads of the client may still run.
    os._exit(0)


if __name__ == "__main__":
    main()
