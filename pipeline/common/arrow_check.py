"""Checks that pyarrow is installed. All modules that Spark loads import this first, for a clear error."""

from __future__ import annotations

import sys
from typing import Final

from pipeline.common.errors import NoPyArrow

try:
    import pyarrow as pa
except ImportError as missing:
    raise NoPyArrow(sys.executable, str(missing)) from missing

VERSION: Final[str] = pa.__version__
