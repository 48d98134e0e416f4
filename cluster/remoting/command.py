"""A request and a response of the remoting protocol, and the refusal of a request.

Source: RocketMQ `RemotingCommand`, `RequestCode`, `RemotingCode`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from dledger.errors import DLedgerError


class Language(IntEnum):
    """Languages of clients, by their numbers in frames; any other number is OTHER."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class RemotingCode(IntEnum):
    """Codes of responses that the front uses; Go's clients read 16 bits of them."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    FLOW_CONTROL = 215
    ILLEGAL_OPERATION = 604


@dataclass(frozen=True, slots=True)
class Request:
    """A request, of a client or of the front.

    Attributes:
        code: what is asked, 0 to 2^31 - 1.
        fields: names and values of its fields ("ext fields"); all values are text.
        body: its layout depends on the code.
        opaque: by which its response is found, unique among the pending requests of one direction of a connection.
        is_oneway: it must not be answered.
        language: of the client.
        version: of the client, an ordinal of RocketMQ's versions (409 is 4.9.8, 479 is 5.3.3).
    """

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    is_oneway: bool = False
    language: Language = Language.JAVA
    version: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """A response, of the front or of a client.

    Attributes:
        code: a `RemotingCode`, or another one that a client sends.
        fields, body: as those of a request.
        remark: for people; clients show it to their users after a failure.
    """

    code: int = RemotingCode.SUCCESS
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str = ""


class Rejected(DLedgerError):
    """The front refuses a request with a code of RocketMQ; nothing was done. Correct the request.

    Attributes:
        code: of the response.
        remark: for people.
        fields: of the response: some clients need fields also with codes of failures.
    """

    def __init__(self, code: RemotingCode, remark: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.fields = fields or {}
