"""Builds the wheel for applications: only the clients, in the package `dledger_client`. `make wheel-client`.

The server's distribution has top-level packages with the general names `store` and `cluster`, which must not be
installed in an application. This wheel contains exactly the modules that the clients import, from the same sources,
moved to `dledger_client`: `from dledger_client import LogClient, Producer, Consumer`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp

import cluster
import dledger

ROOT = Path(__file__).resolve().parents[1]
NAME = "dledger_client"
OURS = ("store", "dledger", "commitlog", "cluster")
ROOTS = ("dledger.client", "cluster.client")

# The distribution of an imported package, if the names differ.
_DISTRIBUTIONS = {"grpc": "grpcio", "google": "protobuf", "opentelemetry": "opentelemetry-api"}
_IMPORT = re.compile(rf"^(\s*from )((?:{'|'.join(OURS)})(?:\.[\w.]+)? import )", re.MULTILINE)
_MODULE_NAME = re.compile(rf"""(["'])((?:{"|".join(OURS)})\.(?:client|protocol|v1)(?:\.\w+)*)(?=["'])""")


def main() -> int:
    """Build the wheel and print its path."""
    parser = argparse.ArgumentParser(description="Build the wheel of the clients.")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder of the wheel (dist)")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "client", help="folder of its sources (build/client)"
    )
    options = parser.parse_args()
    write_sources(options.work)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", options.into, options.work], check=True)
    print(*sorted(options.into.glob(f"{NAME}-*.whl")), sep="\n")
    return 0


def write_sources(folder: Path) -> None:
    """Write the wheel's sources and its pyproject.toml; older files in the folder are deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    modules, others = needed()
    for module in sorted(modules):
        for source in _files(module):
            target = folder / NAME / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(moved(source), encoding="utf-8")
    (folder / NAME / "__init__.py").write_text(_front(), encoding="utf-8")
    (folder / NAME / "py.typed").touch()
    (folder / "pyproject.toml").write_text(_project(others), encoding="utf-8")
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")


def needed() -> tuple[set[str], set[str]]:
    """Return the modules that the clients import, with their parent packages, and the third-party packages."""
    graph = grimp.build_graph(*OURS, include_external_packages=True, exclude_type_checking_imports=True)
    waiting = [module for module in graph.modules if module.startswith(ROOTS)]
    found: set[str] = set()
    others: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module.partition(".")[0] not in OURS:
            others.add(module)
        elif module not in found:
            found.add(module)
            waiting += [*graph.find_modules_directly_imported_by(module), *_parents(module)]
    return found, others - sys.stdlib_module_names


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _files(module: str) -> list[Path]:
    """Return the source file of a module and, for a generated module, its type stub."""
    path = ROOT.joinpath(*module.split("."))
    candidates = (path / "__init__.py", path.with_suffix(".py"), path.with_suffix(".pyi"))
    return [each for each in candidates if each.is_file()]


def moved(source: Path) -> str:
    """Return a source with our imports, and module names in strings, moved to `dledger_client`."""
    text = _IMPORT.sub(rf"\1{NAME}.\2", source.read_text(encoding="utf-8"))
    # Only `__init__.py` files have module names for lazy imports; generated code contains its own module name.
    if source.name == "__init__.py" or source.stem.endswith("_pb2"):
        text = _MODULE_NAME.sub(rf"\1{NAME}.\2", text)
    return text


def exports() -> dict[str, str]:
    """Return each public name of the clients with its package; those of the log come first."""
    return dict.fromkeys(cluster.__all__, "cluster") | dict.fromkeys(dledger.__all__, "dledger")


def _front() -> str:
    names = exports()
    imports = "".join(f"    from {NAME}.{package} import {name} as {name}\n" for name, package in sorted(names.items()))
    packages = "".join(f'    "{name}": "{NAME}.{package}",\n' for name, package in sorted(names.items()))
    return f'''"""Clients of dledger: the replicated log and messages. Each name is imported on its first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
{imports}
_PACKAGES = {{
{packages}}}
__all__ = list(_PACKAGES)


def __getattr__(name: str) -> Any:
    """Import a client on its first use."""
    if name not in _PACKAGES:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    value = getattr(import_module(_PACKAGES[name]), name)
    globals()[name] = value
    return value
'''


def _project(others: set[str]) -> str:
    """Return the wheel's pyproject.toml, with version, Python version and dependency ranges of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {_DISTRIBUTIONS.get(name, name) for name in others}

    def listed(ranges: list[str]) -> str:
        return "".join(f"    {each!r},\n" for each in ranges if re.split(r"[<>=;~! ]", each)[0] in wanted)

    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "dledger-client"
version = "{project["version"]}"
description = "Clients of dledger, a replicated commit log and message broker"
license = "Apache-2.0"
license-files = ["LICENSE"]
requires-python = "{project["requires-python"]}"
classifiers = ["Private :: Do Not Upload", "Typing :: Typed"]
dependencies = [
{listed(project["dependencies"])}]

[project.optional-dependencies]
otel = [
{listed(project["optional-dependencies"]["otel"])}]

[tool.hatch.build.targets.wheel]
packages = ["{NAME}"]
"""


if __name__ == "__main__":
    sys.exit(main())
