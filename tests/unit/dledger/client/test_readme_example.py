"""README's first Python example runs as it is printed, and each of its `except` branches prints its outcome."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Self

import pytest

import dledger

if TYPE_CHECKING:
    from collections.abc import Iterator

README = Path(__file__).parents[4] / "README.md"


class ScriptedLog:
    """A `LogClient` that appends to a list; its second `append` ends as the test says."""

    def __init__(self, endpoints: str, *, outcome: Exception | None) -> None:
        assert endpoints == "127.0.0.1:20921"
        self._outcome = outcome
        self._bodies: list[bytes] = []
        self._appends = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is open."""

    def append(self, body: bytes) -> dledger.Appended:
        self._appends += 1
        if self._appends == 2 and self._outcome is not None:
            raise self._outcome
        return self.append_many([body])[0]

    def append_many(self, bodies: list[bytes]) -> list[dledger.Appended]:
        self._bodies += bodies
        end = len(self._bodies)
        return [dledger.Appended(index, 1, 0) for index in range(end - len(bodies), end)]

    def read(self, begin: int) -> Iterator[SimpleNamespace]:
        for index in range(begin, len(self._bodies)):
            yield SimpleNamespace(index=index, term=1, body=self._bodies[index])


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (None, ""),
        (dledger.NotAppended(302, "no leader"), "not appended; a retry is safe: .*no leader.*\n"),
        (dledger.AppendUnknown(302, "no answer"), "outcome unknown; read the end of the log .*: .*no answer.*\n"),
    ],
    ids=["appended", "not appended", "unknown"],
)
def test_example_prints_entries_and_the_outcome_of_the_last_append(
    outcome: Exception | None, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]
    monkeypatch.setenv("DLEDGER_ENDPOINTS", "127.0.0.1:20921")
    monkeypatch.setattr(dledger, "LogClient", lambda endpoints: ScriptedLog(endpoints, outcome=outcome))

    exec(compile(example, str(README), "exec"), {})

    entries = r"0 1 b'hello'\n1 1 b'a'\n2 1 b'b'\n3 1 b'c'\n"
    assert re.fullmatch(entries + line, capsys.readouterr().out)
