"""Creates the users of a secured cluster's brokers after their first start, with calls as an administrator makes them.

A broker creates its first user by itself, from a file. With the password of that user this module logs in, creates the
user for applications, and registers the API tokens of both. It may be repeated.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cluster.access.model import Action
from cluster.client.broker_calls import BrokerCalls
from cluster.client.login import log_in
from cluster.client.token_file import read_token
from cluster.local.node import ClusterError
from cluster.local.secured import ADMINISTRATOR, APPLICATION, USERS
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import access_pb2 as pb
from dledger.authentication.tokens import digest_of_api_token
from dledger.authentication.verifier import SALT_SIZE, make_verifier

if TYPE_CHECKING:
    from cluster.local.secured import LocalSecurity

_CALL_S: Final = 10.0
_POLL_S: Final = 0.1
_TOKEN_ID: Final = "local-cluster"  # noqa: S105  (a name, not a secret)
_RIGHTS: Final = {
    "Topic:*": Action.PUB | Action.SUB | Action.CREATE | Action.GET | Action.LIST,
    "Group:*": Action.SUB | Action.CREATE | Action.GET | Action.LIST,
    "Cluster:*": Action.GET | Action.LIST,
}


def create_users(endpoints: str, security: LocalSecurity, timeout_s: float) -> None:
    """Create the users of one broker.

    Args:
        endpoints: `host:port` of its nodes, comma separated.
        security: secrets of the cluster.
        timeout_s: limit of the wait until the broker has a leader and its first user.

    Raises:
        ClusterError: that did not happen in time, or the broker refused the users.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            _create(endpoints, security)
        except RequestFailed as failure:
            # NOT_AUTHENTICATED until the first user exists.
            is_retriable = failure.is_worth_repeating or failure.reason is Reason.NOT_AUTHENTICATED
            if not is_retriable or time.monotonic() >= deadline:
                raise ClusterError(f"the users of the broker at {endpoints} were not created: {failure}") from failure
        else:
            return
        time.sleep(_POLL_S)


def _create(endpoints: str, security: LocalSecurity) -> None:
    with_certificate = replace(security.client(), token=None)
    with BrokerCalls(endpoints, _CALL_S, security=with_certificate) as calls:
        token = log_in(calls, ADMINISTRATOR, security.password_of(ADMINISTRATOR)).token
    with BrokerCalls(endpoints, _CALL_S, security=replace(with_certificate, token=lambda: token)) as calls:
        _ask(calls, "SetUser", _application(security), ignored=Reason.USER_EXISTS)
        for user in USERS:
            digest = digest_of_api_token(read_token(security.token_of(user))) or b""
            request = pb.AddTokenRequest(user=user, id=_TOKEN_ID, digest=digest)
            _ask(calls, "AddToken", request, ignored=Reason.TOKEN_EXISTS)


def _application(security: LocalSecurity) -> pb.SetUserRequest:
    policies = [pb.AccessPolicy(resource=resource, actions=int(actions)) for resource, actions in _RIGHTS.items()]
    verifier = make_verifier(security.password_of(APPLICATION), secrets.token_bytes(SALT_SIZE)).text()
    return pb.SetUserRequest(user=pb.AccessUser(name=APPLICATION, policies=policies), verifier=verifier, is_new=True)


def _ask(calls: BrokerCalls, method: str, request: Any, *, ignored: Reason) -> None:
    """Ask for a change; a repeated one succeeds."""
    try:
        calls.ask_access(lambda stub: getattr(stub, method), request)
    except RequestFailed as failure:
        if failure.reason is not ignored:
            raise
