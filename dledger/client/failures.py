"""Classifies a failed gRPC call: whether the request was sent.

A failed call may have been executed by the node, with only the answer lost. So a failure means "outcome unknown", with
five exceptions that prove that nothing was done:

- *No connection could be made.* gRPC picks a connection before it writes; without one the call ends with UNAVAILABLE
  and one of the texts below, which no other failure has. A call that had a connection and lost it
  ends with another text ("Socket closed", "Connection reset by peer", ...). Automatic retries of gRPC are switched
  off (`CHANNEL_OPTIONS`), so the text never hides an earlier attempt. If a future version of gRPC changes the texts,
  the client reports more outcomes as unknown, which is safe.
- *The server begins no more calls on a connection of frames*: it says so (`dledger.frames.codec.NOT_BEGUN`).
- *A node of a broker does not know the caller yet*: it says so (`dledger.errors.AccessUnknown`); others may.
- *UNIMPLEMENTED*: the server has no such method, so nothing ran.
- *The gate refused it*: UNAUTHENTICATED, PERMISSION_DENIED, and RESOURCE_EXHAUSTED with the text of a quota or a share.
  A server has no other use for the first two, and refuses before it does anything.
"""

from __future__ import annotations

import re

import grpc

from dledger.client.outcomes import AppendUnknown, Refused
from dledger.errors import AccessUnknown, Overloaded, OverQuota, ResponseCode
from dledger.frames.codec import NOT_BEGUN
from dledger.v1.log_pb2 import StatusResponse

_NEVER_CONNECTED = (
    "failed to connect to all addresses",
    "errors resolving",
    "DNS resolution failed",
    "empty address list",
)
# A node that was reached says that it did not begin the call.
_NOT_BEGUN = (NOT_BEGUN, AccessUnknown.PREFIX)

_BAD_CERTIFICATE = re.compile("CERTIFICATE_VERIFY_FAILED: ([^:]+)")
_TLS_REASONS = (
    ("Hostname Verification Check failed", "TLS: its certificate does not have the host of this address"),
    ("WRONG_VERSION_NUMBER", "TLS: it does not use TLS"),
    # The only text that gRPC has for a server that refuses the client, in TLS 1.3 even for a bad certificate.
    ("Socket closed", "Socket closed: it may require TLS, or another certificate of this client"),
)

_UNKNOWN = ResponseCode.NETWORK_ERROR
_OF_PREFIX = {OverQuota.PREFIX: ResponseCode.OVER_QUOTA, Overloaded.PREFIX: ResponseCode.LEADER_PENDING_FULL}
_OF_GATE = {
    grpc.StatusCode.PERMISSION_DENIED: ResponseCode.ACCESS_DENIED,
    grpc.StatusCode.UNAUTHENTICATED: ResponseCode.NOT_AUTHENTICATED,
}

# Larger than any message that a node accepts or sends.
_MESSAGE_SIZE_BYTES_MAX = 64 << 20

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # One call is one attempt: see above. It also saves the cost of gRPC's retry support in every call.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # A restarted node must be found soon (gRPC's defaults are 1 s up to 2 minutes).
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # The time limit of one attempt to connect, despite its name: it does not delay the attempt after a refusal. A busy
    # or distant machine answers within a second; one that is off fails after this time, and others are asked.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    # Connections to nodes do not use a web proxy.
    ("grpc.enable_http_proxy", 0),
    # Clients do not share connections.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", _MESSAGE_SIZE_BYTES_MAX),
    ("grpc.max_send_message_length", _MESSAGE_SIZE_BYTES_MAX),
)


def never_left(code: grpc.StatusCode, details: str) -> bool:
    """Return whether a node has certainly not begun a call that ended like this; another node may serve it."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return True
    return code is grpc.StatusCode.UNAVAILABLE and details.startswith((*_NEVER_CONNECTED, *_NOT_BEGUN))


def describe(address: str, code: grpc.StatusCode, details: str, service: str = "LogService") -> str:
    """Return a description of the failure with the address and gRPC's text; `service` is the called service."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{address} did not answer in time"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"{address} answers gRPC but has no {service}: is this the node's client_address?"
    if code is grpc.StatusCode.UNAVAILABLE and details.startswith(_NEVER_CONNECTED):
        return f"{address} is not reachable ({_reason(details)})"
    return f"{address}: {code.name} {details}".rstrip()


def _reason(details: str) -> str:
    """Return why no connection could be made."""
    if found := _BAD_CERTIFICATE.search(details):
        return f"TLS: its certificate is refused: {found[1]}"
    for mark, text in _TLS_REASONS:
        if mark in details:
            return text
    # gRPC nests its reasons; the innermost one is readable: "Connection refused".
    return details.rpartition(": ")[2].rstrip("]")


def code_of_failure(code: grpc.StatusCode, details: str) -> ResponseCode:
    """Return the code of a failed call: 302, unless the gate of the server refused it."""
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return next((each for prefix, each in _OF_PREFIX.items() if details.startswith(prefix)), _UNKNOWN)
    return _OF_GATE.get(code, _UNKNOWN)


def answer_of_failure(address: str, code: grpc.StatusCode, details: str) -> StatusResponse | str:
    """Return the meaning of a failed request for the status of a node.

    Returns:
        An answer with a code if the node is alive and refuses this client, so that no retry can succeed. Otherwise a
        description of why there is no answer.
    """
    if code in _OF_GATE:
        return StatusResponse(code=_OF_GATE[code], message=describe(address, code, details))
    return describe(address, code, details)


def failure_of_append(address: str, code: grpc.StatusCode, details: str) -> Refused | AppendUnknown:
    """Return the outcome of a failed append call: `Refused` if certainly nothing was done, or `AppendUnknown`."""
    text = describe(address, code, details)
    outcome = code_of_failure(code, details)
    if outcome is not ResponseCode.NETWORK_ERROR or never_left(code, details):
        return Refused(outcome, text)
    return AppendUnknown(outcome, text)
