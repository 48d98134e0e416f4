"""Classifies a failed gRPC call: whether the request was sent.

A call that fails may have reached the node and done its work; only the answer is missing. So a failure means "outcome
unknown", with two exceptions that prove that no node has seen the request:

- *No connection could be made.* gRPC picks a connection first and writes then; when there is none to pick the call ends
  with UNAVAILABLE and one of the texts below, which are made nowhere else. A call that had a connection and lost it
  ends with another text ("Socket closed", "Connection reset by peer", ...). Automatic retries of gRPC are switched
  off (`CHANNEL_OPTIONS`), so the text never hides an earlier attempt. Were a future version of gRPC to
  change the texts, the client would only call more outcomes unknown: the safe side.
- *UNIMPLEMENTED*: the server has no such method, so nothing ran.
"""

from __future__ import annotations

import re

import grpc

from dledger.client.outcomes import AppendUnknown, Refused
from dledger.errors import ResponseCode

_NEVER_CONNECTED = (
    "failed to connect to all addresses",
    "errors resolving",
    "DNS resolution failed",
    "empty address list",
)

_BAD_CERTIFICATE = re.compile("CERTIFICATE_VERIFY_FAILED: ([^:]+)")
_TLS_REASONS = (
    ("Hostname Verification Check failed", "TLS: its certificate does not have the host of this address"),
    ("WRONG_VERSION_NUMBER", "TLS: it does not use TLS"),
    # All that a client sees of a server that refuses it, in TLS 1.3 even for a bad certificate.
    ("Socket closed", "Socket closed: it may require TLS, or another certificate of this client"),
)

# One entry of the largest size and its neighbours; the node itself bounds what it takes and sends.
_MESSAGE_SIZE_BYTES_MAX = 64 << 20

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # One call is one attempt: see above. It also saves the retry machinery's share of every call.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # A node that was down must be found again soon after it is back (the defaults are 1 s up to 2 minutes).
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # How long one attempt may take, whatever the name says: it does not delay the next one after a refusal. A busy
    # machine, or one far away, answers in a second; one that is off is given up after this, and others are asked.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    # Nodes of a cluster are not reached through a web proxy.
    ("grpc.enable_http_proxy", 0),
    # Every client has connections of its own.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", _MESSAGE_SIZE_BYTES_MAX),
    ("grpc.max_send_message_length", _MESSAGE_SIZE_BYTES_MAX),
)


def never_left(code: grpc.StatusCode, details: str) -> bool:
    """Return whether a call that ended so can have reached no node."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return True
    return code is grpc.StatusCode.UNAVAILABLE and details.startswith(_NEVER_CONNECTED)


def describe(address: str, code: grpc.StatusCode, details: str, service: str = "LogService") -> str:
    """Return the failure in words, with the address and gRPC's own; `service` is what was called there."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{address} did not answer in time"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"{address} answers gRPC but has no {service}: is this the node's client_address?"
    if never_left(code, details):
        return f"{address} is not reachable ({_reason(details)})"
    return f"{address}: {code.name} {details}".rstrip()


def _reason(details: str) -> str:
    """Return why no connection could be made."""
    if found := _BAD_CERTIFICATE.search(details):
        return f"TLS: its certificate is refused: {found[1]}"
    for mark, text in _TLS_REASONS:
        if mark in details:
            return text
    # gRPC nests its reasons; the innermost says it in words: "Connection refused".
    return details.rpartition(": ")[2].rstrip("]")


def failure_of_append(address: str, code: grpc.StatusCode, details: str) -> Refused | AppendUnknown:
    """Return the outcome of a failed append call: `Refused` (302) if it certainly was not sent, or `AppendUnknown`."""
    text = describe(address, code, details)
    if never_left(code, details):
        return Refused(ResponseCode.NETWORK_ERROR, text)
    return AppendUnknown(ResponseCode.NETWORK_ERROR, text)
