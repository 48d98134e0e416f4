"""`make interop`: tests that RocketMQ opens our stores and we open its stores, then compares the speed of both.

Builds the Java part of tests/interop (once, into build/interop, with Maven; later runs need no network), installs the
official Python, Node, Java and Go clients beside it, each for itself, runs the tests, and measures. Without Java 17 and
Maven, or a client, the tests that need them are reported as skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import compare_stores

ROOT = Path(__file__).resolve().parent.parent
POM = ROOT / "tests" / "interop" / "java" / "pom.xml"
JAR = ROOT / "build" / "interop" / "interop.jar"
_JAVA_VERSION = 17
# Of its own, because its packages are not those of this project, and its stubs have the same names as ours.
CLIENT_ENVIRONMENT = ROOT / "build" / "interop" / "rocketmq-python"
_CLIENT = "rocketmq-python-client==5.1.2"
NODE_CLIENT = ROOT / "build" / "interop" / "rocketmq-node"
_NODE_PACKAGE = "rocketmq-client-nodejs@1.0.8"

JAVA_CLIENTS = ROOT / "build" / "interop" / "rocketmq-java"
# The oldest and the newest; 5.0.5 is the first one that can do without TLS.
_JAVA_VERSIONS = ("5.0.0", "5.0.5", "5.2.0")
GO_SOURCE = ROOT / "tests" / "interop" / "official" / "go"
GO_PROGRAM = ROOT / "build" / "interop" / "official_go_client"


def main() -> int:
    """Build, test, measure; return the exit status of the tests."""
    missing = _what_is_missing()
    environment = dict(os.environ)
    if missing:
        print(f"make interop: {missing}", file=sys.stderr)
        environment["DLEDGER_INTEROP_MISSING"] = missing
    else:
        _build()
        environment["DLEDGER_INTEROP_JAR"] = str(JAR)
    environment |= _python_client()
    environment |= _node_client()
    environment |= _java_clients(missing)
    environment |= _go_client()
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/interop"], cwd=ROOT, env=environment, check=False
    )
    if tests.returncode == 0 and not missing:
        compare_stores.compare(JAR)
    return tests.returncode


def _python_client() -> dict[str, str]:
    """Install the official Python client unless it is there; return what the tests need to know."""
    python = CLIENT_ENVIRONMENT / "bin" / "python"
    has_client = [str(python), "-c", "from importlib.metadata import version; version('rocketmq-python-client')"]
    if not python.exists() or subprocess.run(has_client, capture_output=True, check=False).returncode:
        print(f"installing {_CLIENT} into {CLIENT_ENVIRONMENT.relative_to(ROOT)}", file=sys.stderr)
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(CLIENT_ENVIRONMENT)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", _CLIENT],
        ):
            if subprocess.run(command, check=False).returncode:
                missing = f"{_CLIENT} could not be installed; see the output above"
                print(f"make interop: {missing}", file=sys.stderr)
                return {"DLEDGER_INTEROP_ROCKETMQ_PYTHON_MISSING": missing}
    return {"DLEDGER_INTEROP_ROCKETMQ_PYTHON": str(python)}


def _node_client() -> dict[str, str]:
    """Install the official Node client unless it is there; return what the tests need to know."""
    modules = NODE_CLIENT / "node_modules"
    missing = ""
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing = "needs node and npm on the PATH (on Debian and Ubuntu: nodejs, npm)"
    elif not (modules / "rocketmq-client-nodejs").exists():
        print(f"installing {_NODE_PACKAGE} into {NODE_CLIENT.relative_to(ROOT)}", file=sys.stderr)
        NODE_CLIENT.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", str(NODE_CLIENT), _NODE_PACKAGE]
        if subprocess.run(install, check=False).returncode:
            missing = f"{_NODE_PACKAGE} could not be installed; see the output above"
    if missing:
        print(f"make interop: {missing}", file=sys.stderr)
        return {"DLEDGER_INTEROP_ROCKETMQ_NODE_MISSING": missing}
    return {"DLEDGER_INTEROP_ROCKETMQ_NODE": str(modules)}


def _java_clients(missing: str) -> dict[str, str]:
    """Download the official Java clients unless they are there; return what the tests need to know."""
    for version in () if missing else _JAVA_VERSIONS:
        jar = JAVA_CLIENTS / f"rocketmq-client-java-{version}.jar"
        if jar.exists():
            continue
        artifact = f"org.apache.rocketmq:rocketmq-client-java:{version}"
        print(f"downloading {artifact} into {JAVA_CLIENTS.relative_to(ROOT)}", file=sys.stderr)
        copy = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={JAVA_CLIENTS}"]
        if subprocess.run(["mvn", "--quiet", "--batch-mode", *copy], check=False).returncode:
            missing = f"{artifact} could not be downloaded; see the output above"
    if missing:
        print(f"make interop: {missing}", file=sys.stderr)
        return {"DLEDGER_INTEROP_ROCKETMQ_JAVA_MISSING": missing}
    return {"DLEDGER_INTEROP_ROCKETMQ_JAVA": str(JAVA_CLIENTS)}


def _go_client() -> dict[str, str]:
    """Build the program with the official Go client unless it is newer than its sources."""
    missing = ""
    sources = [file for file in GO_SOURCE.iterdir() if file.is_file()]
    if shutil.which("go") is None:
        missing = "needs the program `go` (on Debian and Ubuntu: golang)"
    elif not GO_PROGRAM.exists() or GO_PROGRAM.stat().st_mtime < max(file.stat().st_mtime for file in sources):
        print("building the Go program (the first time Go downloads the client, some minutes)", file=sys.stderr)
        build = ["go", "build", "-buildvcs=false", "-o", str(GO_PROGRAM), "."]
        if subprocess.run(build, cwd=GO_SOURCE, check=False).returncode:
            missing = "the Go program could not be built; see the output above"
    if missing:
        print(f"make interop: {missing}", file=sys.stderr)
        return {"DLEDGER_INTEROP_ROCKETMQ_GO_MISSING": missing}
    return {"DLEDGER_INTEROP_ROCKETMQ_GO": str(GO_PROGRAM)}


def _what_is_missing() -> str:
    """Return the name of a missing program; empty if none is missing."""
    if shutil.which("java") is None or shutil.which("javac") is None or _java_version() < _JAVA_VERSION:
        package = f"openjdk-{_JAVA_VERSION}-jdk-headless"
        return f"needs a JDK, {_JAVA_VERSION} or newer, on the PATH (on Debian and Ubuntu: {package})"
    if shutil.which("mvn") is None:
        return "needs Maven on the PATH (on Debian and Ubuntu: maven)"
    return ""


def _java_version() -> int:
    version = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=False)
    words = (version.stdout or version.stderr).split()
    number = words[-1].split(".")[0] if words else ""
    return int(number) if number.isdigit() else 0


def _build() -> None:
    """Build the jar unless it is newer than its sources; try offline first."""
    sources = [POM, *sorted(POM.parent.rglob("*.java"))]
    if JAR.exists() and JAR.stat().st_mtime > max(file.stat().st_mtime for file in sources):
        return
    print("building the Java program (the first time Maven downloads RocketMQ's broker, about 80 MB)", file=sys.stderr)
    maven = ["mvn", "--quiet", "--batch-mode", "--file", str(POM)]
    if subprocess.run([*maven, "--offline", "package"], capture_output=True, check=False).returncode:
        subprocess.run([*maven, "package"], check=True)


if __name__ == "__main__":
    sys.exit(main())
