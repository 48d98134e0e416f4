"""`make interop`: tests that RocketMQ opens our stores and we open its stores, then compares the speed of both.

Builds the Java part of tests/interop (once, into build/interop, with Maven; later runs need no network), installs the
official clients (Python, Node, Go, and those in Java of both protocols) into folders of their own beside it, runs the
tests, and measures. Without Java 17 and Maven, or a client, the tests that need them are reported as skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import compare_stores
from official_clients import ClientMissing, python_with_client

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "tests" / "interop" / "java" / "pom.xml"
JAR = ROOT / "build" / "interop" / "interop.jar"
_JAVA_VERSION = 17
NODE_CLIENT = ROOT / "build" / "interop" / "rocketmq-node"
_NODE_PACKAGE = "rocketmq-client-nodejs@1.0.8"
# The jars of mqadmin; its program is compiled at its start.
MQADMIN = ROOT / "build" / "interop" / "rocketmq-mqadmin"
_MQADMIN_POM = POM.parent / "mqadmin" / "pom.xml"
# The jars of RocketMQ's name server and broker.
SERVER = ROOT / "build" / "interop" / "rocketmq-server"
_SERVER_POM = POM.parent / "server" / "pom.xml"
# The classic Java client: `lib` and `classes` of each version are in a folder here.
REMOTING_CLIENTS = ROOT / "build" / "interop" / "rocketmq-remoting"
_REMOTING_PROGRAM = POM.parent / "remoting"
_REMOTING_VERSIONS = ("4.9.8", "5.3.3")
_COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

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
        environment["DLEDGER_INTEROP_ROCKETMQ_SERVER_MISSING"] = missing
    else:
        _build()
        environment["DLEDGER_INTEROP_JAR"] = str(JAR)
        environment |= _mqadmin()
        environment |= _server()
        environment |= _remoting_clients()
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


def _mqadmin() -> dict[str, str]:
    """Get the jars of mqadmin unless they are there; return what the tests need to know."""
    if not MQADMIN.exists():
        print(f"getting mqadmin into {MQADMIN.relative_to(ROOT)}", file=sys.stderr)
        maven = ["mvn", "--quiet", "--batch-mode", "--file", str(_MQADMIN_POM)]
        copy = [*maven, "dependency:copy-dependencies", f"-DoutputDirectory={MQADMIN}", "-DincludeScope=runtime"]
        if subprocess.run(copy, check=False).returncode:
            print("make interop: mqadmin could not be got; see the output above", file=sys.stderr)
            return {}
    return {"DLEDGER_MQADMIN_LIB": str(MQADMIN)}


def _server() -> dict[str, str]:
    """Get the jars of RocketMQ's servers unless they are there; return what the tests need to know."""
    if not SERVER.exists():
        print(f"getting RocketMQ's name server and broker into {SERVER.relative_to(ROOT)}", file=sys.stderr)
        options = ["--quiet", "--batch-mode", "--file", str(_SERVER_POM), _COPY_JARS, f"-DoutputDirectory={SERVER}"]
        if subprocess.run(["mvn", *options, "-DincludeScope=runtime"], check=False).returncode:
            missing = "RocketMQ's servers could not be got; see the output above"
            print(f"make interop: {missing}", file=sys.stderr)
            return {"DLEDGER_INTEROP_ROCKETMQ_SERVER_MISSING": missing}
    return {"DLEDGER_INTEROP_ROCKETMQ_SERVER": str(SERVER)}


def _remoting_clients() -> dict[str, str]:
    """Get the jars of each version and compile our programs with them; return what the tests need to know."""
    for version in _REMOTING_VERSIONS:
        lib, classes = REMOTING_CLIENTS / version / "lib", REMOTING_CLIENTS / version / "classes"
        pom = _REMOTING_PROGRAM / "pom.xml"
        if not lib.exists() or lib.stat().st_mtime < pom.stat().st_mtime:
            print(f"getting rocketmq-client {version}", file=sys.stderr)
            options = ["--quiet", "--batch-mode", "--file", str(pom)]
            options += [_COPY_JARS, f"-Drocketmq.version={version}", f"-DoutputDirectory={lib}"]
            if subprocess.run(["mvn", *options, "-DincludeScope=runtime"], check=False).returncode:
                missing = f"rocketmq-client {version} could not be got; see the output above"
                print(f"make interop: {missing}", file=sys.stderr)
                return {"DLEDGER_INTEROP_REMOTING_MISSING": missing}
            lib.touch()
        compile_it = ["javac", "-nowarn", "-proc:none", "-XDsuppressNotes", "-cp", f"{lib}/*", "-d", str(classes)]
        subprocess.run([*compile_it, *map(str, sorted(_REMOTING_PROGRAM.glob("*.java")))], check=True)
    return {"DLEDGER_INTEROP_REMOTING": str(REMOTING_CLIENTS)}


def _python_client() -> dict[str, str]:
    """Install the official Python client unless it is there; return what the tests need to know."""
    try:
        return {"DLEDGER_INTEROP_ROCKETMQ_PYTHON": str(python_with_client())}
    except ClientMissing as error:
        print(f"make interop: {error}", file=sys.stderr)
        return {"DLEDGER_INTEROP_ROCKETMQ_PYTHON_MISSING": str(error)}


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
    sources = [POM, *sorted((POM.parent / "src").rglob("*.java"))]
    if JAR.exists() and JAR.stat().st_mtime > max(file.stat().st_mtime for file in sources):
        return
    print("building the Java program (the first time Maven downloads RocketMQ's broker, about 80 MB)", file=sys.stderr)
    maven = ["mvn", "--quiet", "--batch-mode", "--file", str(POM)]
    if subprocess.run([*maven, "--offline", "package"], capture_output=True, check=False).returncode:
        subprocess.run([*maven, "package"], check=True)


if __name__ == "__main__":
    sys.exit(main())
