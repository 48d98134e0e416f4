"""Generates the Python stubs of `proto/` in the packages, or (--check) compares them with the committed ones."""

from __future__ import annotations

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
# google/protobuf/duration.proto and timestamp.proto.
_STANDARD = Path(grpc_tools.__file__).parent / "_proto"
# Absolute path, so that this works without an activated environment.
_PLUGINS = [
    f"--plugin={name}={Path(sys.executable).parent / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
]


def generate(target: Path) -> list[Path]:
    """Write messages, type stubs and gRPC stubs for every .proto file; return paths relative to `target`."""
    sources = sorted(PROTO.rglob("*.proto"))
    for source in sources:
        (target / source.relative_to(PROTO).parent).mkdir(parents=True, exist_ok=True)
    includes = [f"-I{PROTO}", f"-I{_STANDARD}"]
    arguments = ["protoc", *includes, *_PLUGINS, f"--python_out={target}", f"--mypy_out=quiet:{target}"]
    with_services = [source for source in sources if "\nservice " in source.read_text(encoding="utf-8")]
    if protoc.main([*arguments, *map(str, sources)]) != 0:
        raise SystemExit("protoc failed; see its message above")
    services = ["protoc", *includes, *_PLUGINS, f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}"]
    if with_services and protoc.main([*services, *map(str, with_services)]) != 0:
        raise SystemExit("protoc failed for the services; see its message above")
    return sorted(path.relative_to(target) for path in target.rglob("*_pb2*"))


def main() -> int:
    """Generate in place, or compare and print every file that differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where a stub is out of date")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        stale = [path for path in generate(fresh) if not _is_same(fresh / path, ROOT / path)]
    for path in stale:
        print(f"{path} is out of date: run `make proto` and commit the result")
    return 1 if stale else 0


def _is_same(one: Path, other: Path) -> bool:
    return other.exists() and filecmp.cmp(one, other, shallow=False)


if __name__ == "__main__":
    sys.exit(main())
