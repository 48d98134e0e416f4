"""Reduces an answer of a broker to what two brokers can have in common: a text for each of its parts.

| part | text |
| --- | --- |
| `code` | the number; `closed`: the connection was closed instead |
| `field.NAME` | the value of a header field |
| `form` | `keys that are objects` for a body that only Java's decoders read as JSON; else it is absent |
| `body.PATH` | a leaf of a body of JSON; elements of lists by their number, texts in lists by themselves |
| `body.N.NAME` | a field, or a property, of the stored record N of a body of records |
| `body.NAME` | of a body of lines `NAME=VALUE`: the name is there |

Remarks are for people, and not compared. What no two runs have in common is replaced: times, ids that contain an
address, addresses, and positions in the log.
"""

import json
import re
import struct

from commitlog.record.record import MAGICS, decode

CLOSED = -1
_THERE = "there"
OBJECT_KEYS = "keys that are objects"
_RECORD_MAGICS = tuple(struct.pack(">i", magic) for magic in MAGICS)
_MAGIC_AT = slice(4, 8)
# Milliseconds since 1970, of this century; numbers of ids and of texts are longer.
_TIME = re.compile(r"(?<![0-9A-Za-z])1[0-9]{12}(?![0-9A-Za-z])")
_ID = re.compile(r"(?<![0-9A-Za-z])[0-9A-F]{32,}(?![0-9A-Za-z])")
_HANDLE = re.compile(r"[0-9A-Za-z_-]{60,}={0,2}")
# Java's text for a time of a day that depends on the zone; folders are below the test's.
_TIME_TEXT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}#[0-9:]+")
_FOLDER = re.compile(r"/[^ \"]+/store\b[^ \"]*")
_COUNTER = re.compile(r'"counter":[0-9]+')
_ADDRESS = re.compile(r"/?127\.0\.0\.1:[0-9]+")
_REPLACED = (
    (_ADDRESS, "<address>"),
    (_TIME, "<time>"),
    (_TIME_TEXT, "<time>"),
    (_COUNTER, '"counter":<counter>'),
    (_FOLDER, "<folder>"),
    (_ID, "<id>"),
    (_HANDLE, "<handle>"),
)
_LOG_POSITIONS = frozenset(
    {"commitLogOffset", "physicOffset", "physicalOffset", "indexLastUpdatePhyoffset", "masterCommitLogMaxOffset"}
)


def reduced(response, *, is_only_named=False):
    """Return the parts of a response; of a body only the names of its parts, if that is said."""
    parts = {"code": "closed" if response.code == CLOSED else str(int(response.code))}
    parts |= {f"field.{name}": common(value, name) for name, value in response.fields.items()}
    body = response.body
    if body[_MAGIC_AT] in _RECORD_MAGICS:
        parts |= _records(body)
    elif body[:1] in (b"{", b"["):
        text = body.decode()
        standard = quoted(text)
        if standard != text:
            parts["form"] = OBJECT_KEYS
        parts |= dict(_leaves("body", json.loads(standard)))
    elif body:
        lines = body.decode().splitlines()
        parts |= {f"body.{line.partition('=')[0]}": _THERE for line in lines if line}
    if is_only_named:
        parts |= {name: _THERE for name in parts if name.startswith("body.")}
    return parts


def common(value, name=""):
    """Return a text without what no two runs have in common."""
    if name == "counter":
        # Of a version of data: changes of all kinds that a broker has made.
        return "<counter>"
    if name in _LOG_POSITIONS and value not in ("0", "-1"):
        return "<position>"
    if name.endswith("Tps"):
        return "<rate>"
    if name == "reviveQid":
        # RocketMQ uses its queues of pop in turn, for all groups.
        return "<queue>"
    for pattern, word in _REPLACED:
        value = pattern.sub(word, value)
    return value


def quoted(text):
    """Return JSON whose keys are texts: those that are objects, or numbers, are quoted.

    Args:
        text: as RocketMQ writes maps whose keys are objects, `{{"a":1}:2}`, or JSON.
    """
    found, at = [], 0
    is_key, kinds = False, []
    while at < len(text):
        letter = text[at]
        if letter == '"':
            end = _end_of_string(text, at)
        elif is_key and letter not in "} ":
            end = _end_of_object(text, at) if letter == "{" else text.index(":", at)
            found.append(json.dumps(text[at:end]))
            at, is_key = end, False
            continue
        else:
            end = at + 1
            if letter in "{[":
                kinds.append(letter)
            elif letter in "}]":
                kinds.pop()
        found.append(text[at:end])
        is_key = letter == "{" or (letter == "," and kinds[-1] == "{")
        at = end
    return "".join(found)


def _end_of_string(text, at):
    end = at + 1
    while text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    return end + 1


def _end_of_object(text, at):
    depth, end = 0, at
    while True:
        if text[end] == '"':
            end = _end_of_string(text, end)
            continue
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
        if depth == 0:
            return end


def _leaves(path, value):
    """Yield the path and the text of each leaf; of an empty map or list, that it is empty."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(f"{path}.{_key(name)}", each)
    elif isinstance(value, list) and value:
        if all(isinstance(each, str) for each in value):
            yield from ((f"{path}.{common(each)}", _THERE) for each in value)
            return
        # Their order must not depend on what is replaced.
        for number, each in enumerate(sorted(value, key=lambda each: sorted(_leaves("", each)))):
            yield from _leaves(f"{path}.{number}", each)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield path, common(text, path.rpartition(".")[2])


def _key(name):
    """Return a key without an address or a time; an object's as `a=1 b=2`, whatever their order was."""
    if name.startswith("{"):
        return " ".join(f"{key}={value}" for key, value in sorted(json.loads(name).items()))
    return common(name)


def _records(body):
    parts, at, number = {}, 0, 0
    view = memoryview(body)
    while at < len(body):
        record = decode(view, at)
        fields = {
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "flag": record.flag,
            "sysFlag": record.sys_flag,
            "reconsumeTimes": record.reconsume_times,
            "text": bytes(record.body).decode(errors="replace"),
            **{f"property.{name}": value for name, value in record.properties.items()},
        }
        parts |= {f"body.{number}.{name}": common(str(value)) for name, value in fields.items()}
        at, number = record.end, number + 1
    return parts
