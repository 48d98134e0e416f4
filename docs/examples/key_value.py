"""A replicated dictionary in a hundred lines: a state machine whose commands are JSON in the bodies of entries.

    {"op":"put","key":"a","value":1}                     the value that was there before
    {"op":"delete","key":"a"}                            the same
    {"op":"swap","key":"a","expected":1,"value":2}       whether it was done: only if the value was `expected`

Every node applies the same commands in the same order and so has the same dictionary. A command that makes no sense
is answered, not raised: an exception would stop every node, one after the other, at the same entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from dledger.entry import Entry

_CHUNK_KEYS = 1000


def put(key: str, value: Any) -> bytes:
    """Return the body that sets a key."""
    return _encode({"op": "put", "key": key, "value": value})


def delete(key: str) -> bytes:
    """Return the body that removes a key."""
    return _encode({"op": "delete", "key": key})


def swap(key: str, expected: Any, value: Any) -> bytes:
    """Return the body that sets a key if its value is `expected`; None stands for a key that is not there."""
    return _encode({"op": "swap", "key": key, "expected": expected, "value": value})


class KeyValueMachine:
    """`dledger.state_machine.StateMachine`: a dictionary of JSON values."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        """Return a value, None when there is none; linearizable behind a read index that has been applied."""
        return self._values.get(key)

    def apply(self, entries: Sequence[Entry]) -> list[Any]:
        """Run the commands."""
        return [self._run(entry.body) for entry in entries]

    def snapshot_save(self) -> Iterator[bytes]:
        """Yield the dictionary as lines of JSON, some keys in each."""
        items = list(self._values.items())
        for begin in range(0, len(items), _CHUNK_KEYS):
            yield _encode(dict(items[begin : begin + _CHUNK_KEYS])) + b"\n"

    def snapshot_load(self, content: bytes) -> None:
        """Take over the dictionary that `snapshot_save` wrote."""
        self._values = {}
        for line in content.splitlines():
            self._values.update(json.loads(line))

    def _run(self, body: bytes) -> Any:
        try:
            command = json.loads(body)
            operation, key = command["op"], command["key"]
            before = self._values.get(key)
            if operation == "delete":
                self._values.pop(key, None)
                return before
            if operation == "put":
                self._values[key] = command["value"]
                return before
            if operation == "swap":
                is_done = before == command["expected"]
                if is_done:
                    self._values[key] = command["value"]
                return is_done
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"no command: {error!r}"}
        return {"error": f"no operation {operation!r}"}


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
