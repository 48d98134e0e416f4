"""How a request of the remoting protocol is signed.

| field | value |
| --- | --- |
| `AccessKey` | name of the access key; some clients send an empty one |
| `Signature` | base64 of the signature, over the values of all other fields in the order of their names, and the body |

The signature covers the request whole, but no time: a request that was read on the network can be repeated.

Source: RocketMQ `AclClientRPCHook`, `AclUtils.combineRequestContent`.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from cluster.access.access_keys import ACCESS_KEY_LENGTH_MAX, SIGNATURE_SIZE, SignatureRefused
from cluster.fronts.callers import Signed
from cluster.remoting.command import Rejected, RemotingCode

if TYPE_CHECKING:
    from cluster.remoting.command import Request

_ACCESS_KEY: Final = "AccessKey"
_SIGNATURE: Final = "Signature"
_SIGNATURE_LENGTH: Final = 4 * -(-SIGNATURE_SIZE // 3)
# Clients up to version 4.9.3 add this field after they have signed.
_UNSIGNED_FIELD: Final = "_UNIQUE_KEY_QUERY"
_UNSIGNED_VERSION_MAX: Final = 399
# No request has a larger body. It takes 10 ms to look at, which an unknown client must not choose.
_BODY_BYTES_MAX: Final = 4 << 20


def signed_request(request: Request) -> Signed | None:
    """Return the signature of a request; None: it is anonymous.

    Raises:
        SignatureRefused: its fields have not the expected form.
        Rejected: MESSAGE_ILLEGAL: its body is larger than that of any request.
    """
    access_key = request.fields.get(_ACCESS_KEY, "")
    if not access_key:
        return None
    if len(request.body) > _BODY_BYTES_MAX:
        raise Rejected(RemotingCode.MESSAGE_ILLEGAL, f"body: expected at most {_BODY_BYTES_MAX} bytes")
    text = request.fields.get(_SIGNATURE, "")
    if len(access_key) > ACCESS_KEY_LENGTH_MAX or len(text) != _SIGNATURE_LENGTH:
        raise SignatureRefused("malformed fields")
    try:
        signature = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SignatureRefused("malformed fields") from None
    return Signed(access_key, signature, _content(request))


def _content(request: Request) -> bytes:
    left_out = {_SIGNATURE}
    if request.version <= _UNSIGNED_VERSION_MAX:
        left_out.add(_UNSIGNED_FIELD)
    names = sorted(request.fields.keys() - left_out, key=str.encode)
    return "".join(request.fields[name] for name in names).encode() + request.body
