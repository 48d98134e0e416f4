"""Directories that the Java programs wrote, unpacked for each test, with the manifests that came with them."""

import json
import lzma
import tarfile
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture
def unpack(tmp_path):
    """Return a function that unpacks a fixture by name and returns its folder."""

    def unpack_one(name):
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
            # Python before 3.11.4 has no filters, and no argument for them.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(tmp_path)
        return tmp_path / name

    return unpack_one


@pytest.fixture
def manifest():
    """Return a function that reads the manifest of a fixture: one dict an entry, by index."""

    def read(name):
        with lzma.open(FIXTURES / f"{name}.manifest.jsonl.xz", "rt") as lines:
            return [json.loads(line) for line in lines]

    return read
