"""A broker of three processes with TLS at every port, and users with access keys, for tests of RocketMQ's clients."""

import ssl
from datetime import UTC, datetime
from typing import NamedTuple

from cluster.access.access_keys import signature_of
from cluster.access.model import Action
from cluster.client.broker_calls import BrokerCalls
from cluster.local.brokers import LocalBrokers
from cluster.local.secured import ADMINISTRATOR
from cluster.protocol.errors import RequestFailed
from cluster.v1 import access_pb2, broker_pb2
from tests.support.brokers.group import SETTINGS
from tests.support.brokers.remoting_peer import RemotingPeer
from tests.support.brokers.rocketmq_stub import RocketMQStub
from tests.support.waiting import PATIENCE_S, wait_until

NODES = ("n0", "n1", "n2")
_SMALL = {name: value for name, value in SETTINGS.items() if name != "broker"}


class KeyUser(NamedTuple):
    """A user with an access key.

    Attributes:
        name: of the user.
        key: id of the access key.
        secret: of the access key.
        policies: (resource, actions) that are allowed.
        is_super: whether it may do everything.
    """

    name: str
    key: str
    secret: str
    policies: tuple[tuple[str, Action], ...] = ()
    is_super: bool = False


class SecuredGroup:
    """The processes, their topics and their users; `with` starts and stops them, and prints the ends of their logs.

    Args:
        folder: created if absent.
        users: created by `start`, with their access keys.
        topics: created by `start`, with one queue each: names, and their types: empty for any.
        settings: of every node, by their names in the configuration file.

    Attributes:
        brokers: the processes and their secrets.
        cluster: the nodes.
        authority: the certificate of the authority, in PEM.
        authority_file: its path.
    """

    def __init__(self, folder, users, topics, **settings):
        self._users, self._topics = users, topics
        self._secrets = {user.key: user.secret for user in users}
        options = {**_SMALL, **settings}
        self.brokers = LocalBrokers.create(folder, name_servers=0, options=options, is_secured=True, has_rocketmq=True)
        (self.cluster,) = self.brokers.clusters.values()
        self.authority_file = self.brokers.secrets.folder / "certs" / "authority.crt"
        self.authority = self.authority_file.read_bytes()

    def start(self):
        """Start the nodes; create topics, users and access keys."""
        self.brokers.start(PATIENCE_S)
        self.cluster.wait_for_leader(PATIENCE_S)
        security = self.brokers.secrets.client(ADMINISTRATOR)
        with BrokerCalls(self.brokers.endpoints, PATIENCE_S, security=security) as calls:
            for name, kind in self._topics.items():
                topic = broker_pb2.Topic(name=name, read_queues=1, write_queues=1, permission=6)
                if kind:
                    topic.attributes["message.type"] = kind
                _change(calls.ask, lambda stub: stub.SetTopic, broker_pb2.SetTopicRequest(topic=topic))
            for each in self._users:
                user = access_pb2.AccessUser(name=each.name, is_super=each.is_super)
                for resource, actions in each.policies:
                    user.policies.add(resource=resource, actions=actions)
                _change(calls.ask_access, lambda stub: stub.SetUser, access_pb2.SetUserRequest(user=user))
                request = access_pb2.AddAccessKeyRequest(user=each.name, id=each.key, secret=each.secret)
                _change(calls.ask_access, lambda stub: stub.AddAccessKey, request)

    def stub(self, node_id, key="", *, is_plain=False):
        """Return a client of gRPC that signs with an access key."""
        made = RocketMQStub(self.cluster.rocketmq_endpoint_of(node_id), authority=None if is_plain else self.authority)
        date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = signature_of(self._secrets.get(key, ""), date.encode()).hex()
        value = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signed}"
        made.metadata += [("authorization", value), ("x-mq-date-time", date)]
        return made

    def peer(self, node_id, key="", *, is_plain=False):
        """Return a client of the remoting protocol that signs with an access key."""
        context = ssl.create_default_context(cadata=self.authority.decode())
        tls = None if is_plain else context
        return RemotingPeer(self.remoting_endpoint_of(node_id), key, self._secrets.get(key, ""), tls=tls)

    def remoting_endpoint_of(self, node_id):
        """Return the `host:port` of a node for the remoting protocol."""
        return self.brokers.remoting_endpoints.split(";")[NODES.index(node_id)]

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error):
        self.brokers.stop()
        for node_id in NODES:
            tail = self.cluster.log_of(node_id).read_text(errors="replace").splitlines()[-15:]
            print(f"--- end of {node_id}'s log", *tail, sep="\n")


def _change(ask, method, request):
    """Make a change; it is repeated while a leader is elected or a node is of an older level."""
    failure = None

    def is_done():
        nonlocal failure
        try:
            ask(method, request)
        except RequestFailed as error:
            failure = error
            return False
        return True

    wait_until(is_done, lambda: f"the change is made: {failure}")
