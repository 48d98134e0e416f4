"""Checks that pyarrow is installed: the first import of all that Spark loads, for a clear error if it is missing."""

from __future__ import annotations

import sys
from typing import Final

from pipeline.common.errors import NoPyArrow

try:
    import pyarrow as pa
except ImportError as missing:
    raise NoPyArrow(sys.executable, str(missing)) from missing

VERSION: Final[str] = pa.__version__
