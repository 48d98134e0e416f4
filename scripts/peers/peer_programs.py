"""Builds the servers and drivers of other systems from their packages, once, into build/peers.

Nothing of theirs is in this repository: Go and Maven fetch the versions that `go/*/go.mod` and `java/pom.xml` name. A
system whose programs cannot be built is skipped, with the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE: Final = Path(__file__).resolve().parent
BUILD: Final = HERE.parents[1] / "build" / "peers"
JAR: Final = BUILD / "java" / "peers.jar"
# The first build of etcd compiles for some minutes on a slow machine, after a download of 100 MB.
_BUILD_LIMIT_S: Final = 1_200
_REASON_LENGTH_MAX: Final = 200


class Unavailable(Exception):
    """A system cannot be measured here; the text has the reason and what to install."""


def build_go(module: str, server: str, package: str) -> None:
    """Build the server and the driver of one Go module, unless both are newer than their sources.

    Args:
        module: folder in `go`.
        server: name of the server's program in `BUILD`; the driver is `MODULE-driver`.
        package: the server's package with its main function.

    Raises:
        Unavailable: Go is not installed, or the build failed.
    """
    _require("go", "Go (on Debian and Ubuntu: golang-go), in the version that go.mod names or newer")
    folder = HERE / "go" / module
    driver = BUILD / f"{module}-driver"
    sources = [*folder.glob("*"), *(HERE / "go" / "load").glob("*")]
    for program, target in ((driver, "."), (BUILD / server, package)):
        if not _is_newer(program, sources):
            _build(["go", "build", "-o", str(program), target], folder, f"{module}, with Go")


def build_java() -> None:
    """Build the node and the driver of DLedger, unless they are newer than their sources; try offline first.

    Raises:
        Unavailable: Java or Maven is not installed, or the build failed.
    """
    _require("java", "a JDK, 17 or newer (on Debian and Ubuntu: openjdk-17-jdk-headless)")
    _require("javac", "a JDK, 17 or newer (on Debian and Ubuntu: openjdk-17-jdk-headless)")
    _require("mvn", "Maven (on Debian and Ubuntu: maven)")
    folder = HERE / "java"
    if _is_newer(JAR, [folder / "pom.xml", *folder.rglob("*.java")]):
        return
    maven = ["mvn", "--quiet", "--batch-mode", "package"]
    try:
        _build([*maven, "--offline"], folder, "")
    except Unavailable:
        _build(maven, folder, "DLedger, with Maven")


def version_in(path: Path, pattern: str) -> str:
    """Return the version that a file of dependencies names, as the first group of `pattern` finds it."""
    found = re.search(pattern, path.read_text(encoding="utf-8"))
    assert found, f"{path}: nothing matches {pattern}"
    return found[1]


def go_version(module: str, package: str) -> str:
    """Return the version of a package in the go.mod of a module, without its letter."""
    return version_in(HERE / "go" / module / "go.mod", rf"\t{re.escape(package)} v(\S+)")


def dledger_version() -> str:
    """Return the version of DLedger in the pom."""
    return version_in(HERE / "java" / "pom.xml", r"<dledger\.version>([^<]+)<")


def _require(program: str, install: str) -> None:
    if shutil.which(program) is None:
        raise Unavailable(f"{program} is not on the PATH: install {install}")


def _is_newer(program: Path, sources: Sequence[Path]) -> bool:
    return program.exists() and program.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def _build(command: Sequence[str], folder: Path, what: str) -> None:
    """Run a build.

    Args:
        command: of the build.
        folder: in which it runs.
        what: for a line on the progress; empty: none.

    Raises:
        Unavailable: it failed or took too long.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    if what:
        print(f"building {what} (the first time its packages are downloaded)", flush=True)
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # So that a build that takes too long ends with the compilers that it started.
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=_BUILD_LIMIT_S)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Unavailable(f"{command[0]} did not end within {_BUILD_LIMIT_S} s") from None
        raise
    if process.returncode:
        raise Unavailable(f"{command[0]} failed: {reason_in(output)} (the first build needs the network)")


def reason_in(output: str) -> str:
    """Return the line of a failed build's output that explains it: of Maven the first error, of Go the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("[ERROR]")]
    chosen = errors[0].removeprefix("[ERROR]").strip() if errors else lines[-1] if lines else "no output"
    # An address in it depends on the set-up of this machine.
    return re.sub(r"https?://\S+", "(address)", chosen)[:_REASON_LENGTH_MAX]
