"""Names the package to install when a library of the pipeline is missing. Imports only the project's errors."""

from __future__ import annotations

from importlib.util import find_spec

from pipeline.common.errors import PipelineError

# Libraries that the commands need in addition to the base installation.
LIBRARIES = ("pyarrow", "pyspark", "matplotlib")


class MissingLibrary(PipelineError):
    """A library of the extra `spark` is not installed.

    Attributes:
        library: its name.
    """

    def __init__(self, library: str) -> None:
        remedy = 'Install the extra: in a checkout of dledger, pip install ".[spark]"'
        super().__init__("dledger spark", f"the library {library}", "it is not installed", remedy)
        self.library = library


def check_libraries(libraries: tuple[str, ...] = LIBRARIES) -> None:
    """Raise unless these libraries are installed.

    Raises:
        MissingLibrary: the first missing one.
    """
    for library in libraries:
        if find_spec(library) is None:
            raise MissingLibrary(library)
