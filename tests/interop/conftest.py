"""The Java program for these tests: `make interop` builds it and reports its location, or why it is missing."""

import os

import pytest

from tests.interop.java_program import JavaProgram


@pytest.fixture
def java(tmp_path):
    """Return the Java program; without it the test is skipped, with a reason that states what to install."""
    jar = os.environ.get("DLEDGER_INTEROP_JAR")
    if not jar:
        pytest.skip(os.environ.get("DLEDGER_INTEROP_MISSING", "needs the Java program: `make interop` runs it"))
    folder = tmp_path / "java-program"
    folder.mkdir()
    return JavaProgram(jar, folder)
