"""Runs pytest in forks of one process that has imported the product, the planted bugs, and pytest with its plugins.

A process of its own for each bug would spend most of its time on imports. A fork begins with the same state each time:
what it plants, starts and allocates ends with it.

Run as a program, this is that process: a line of JSON on standard input asks for one fork, a line on standard output
says how it ended.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]
# With one of these pytest compares unequal values line by line: minutes for two files of some MiB.
_FULL_DIFFS = ("CI", "BUILD_NUMBER")


class Forks:
    """The process that is forked, as its owner sees it; started by the first run, ended with its owner."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, arguments: list[str], environment: dict[str, str], output: Path, timeout_s: float) -> int:
        """Run pytest with these arguments in a fork; return its exit code.

        Args:
            arguments: of pytest.
            environment: variables that the fork has besides those of its owner.
            output: the file that gets what it prints.
            timeout_s: seconds after which it is killed, with everything that it has started.

        Raises:
            TimeoutError: it took longer.
        """
        process = self._process or self._start()
        variables = {name: value for name, value in os.environ.items() if name not in _FULL_DIFFS} | environment
        print(json.dumps([arguments, variables, str(output)]), file=process.stdin, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                self.end()
                raise TimeoutError(f"expected an end within {timeout_s:g} s of pytest {arguments}")
        return int(process.stdout.readline())

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.mutants.forks"]
        process = self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        atexit.register(self.end)
        return process

    def end(self) -> None:
        """Kill the process, and the fork that is running; may be called again."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdin.close()
            process.stdout.close()


def main() -> None:
    """Fork once for each line of standard input."""
    import tests.mutants.catalogue  # noqa: F401 - what every fork needs

    _load_pytest()
    for line in sys.stdin:
        arguments, environment, output = json.loads(line)
        pid = os.fork()
        if not pid:
            _test(arguments, environment, output)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _load_pytest() -> None:
    """Load pytest and its plugins as each run does, which takes longer than most tests: collect where no test is."""
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
        code = pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", str(Path(__file__).parent / "bugs")])
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED, code


def _test(arguments: list[str], environment: dict[str, str], output: str) -> NoReturn:
    """Be a process that was started for these tests alone."""
    code = pytest.ExitCode.INTERNAL_ERROR
    try:
        os.environ.clear()
        os.environ.update(environment)
        nothing = os.open(os.devnull, os.O_RDONLY)
        there = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, number in ((nothing, 0), (there, 1), (there, 2)):
            os.dup2(source, number)
        code = pytest.main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
