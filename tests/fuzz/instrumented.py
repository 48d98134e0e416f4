"""The native module for the fuzzer: built with counters of branches, and with checks of addresses and arithmetic.

Without them the fuzzer sees no branch of the code in C, and changes inputs of its targets blindly. It needs clang,
whose counters libFuzzer reads, and the library of atheris that has libFuzzer together with the checks of addresses.
"""

from __future__ import annotations

import os
import runpy
import shutil
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dledger import native

ROOT = Path(__file__).parents[2]
# The path of the module that a process uses instead of the installed one.
MODULE_VARIABLE = "FUZZ_NATIVE_MODULE"
CHECKS = ("-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize-recover=all", "-g")
_COMPILERS = ("clang-19", "clang-20", "clang-21", "clang-18", "clang-17", "clang-16", "clang-15", "clang")
_LIBRARY = "asan_with_fuzzer.so"


def build_instrumented(folder: Path) -> dict[str, str] | str:
    """Build the module in `folder`; return the environment of the processes that use it, or why there is none."""
    compiler = os.environ.get("CLANG") or next(filter(shutil.which, _COMPILERS), None)
    if compiler is None:
        return "no clang (name one with CLANG)"
    library = _library()
    if library is None:
        return f"atheris has no {_LIBRARY}"
    build = runpy.run_path(str(ROOT / "scripts/build_native.py"))
    module = folder.absolute() / build["NAME"]
    with patch.dict(os.environ, {"CC": compiler}):
        fault = build["build"](ROOT, module, *CHECKS)
    if fault is not None:
        return str(fault)
    # Each object has its own block, so that a byte beyond one is noticed; what Python itself never frees is no leak.
    options = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "PYTHONMALLOC": "malloc"}
    return {MODULE_VARIABLE: str(module), "LD_PRELOAD": str(library), **options}


def _library() -> Path | None:
    spec = find_spec("atheris")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    return next((path for path in (package / _LIBRARY, package.parent / _LIBRARY) if path.exists()), None)


def use_module(path: str) -> None:
    """Make this process use the native module at `path`.

    Raises:
        ImportError: it cannot be loaded.
    """
    spec = spec_from_loader("dledger.native._kernels", ExtensionFileLoader("dledger.native._kernels", path))
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    native.kernels = module
