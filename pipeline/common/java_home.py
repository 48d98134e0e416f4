"""Finds a Java runtime for Spark, so that JAVA_HOME need not be set; or reports what to install.

Search order: JAVA_HOME, `java` of the PATH, the usual installation folders. The version is read from the file `release`
of the runtime; no process is started.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.common.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The versions that Spark 4.2 and 4.3 support; the first one found is used.
VERSIONS: Final = (17, 21)
PLACES: Final = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/opt", "/Library/Java/JavaVirtualMachines")
_VERSION: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


class NoJava(PipelineError):
    """Spark needs Java 17 or 21, and none was found.

    Attributes:
        seen: the Java runtimes of other versions that were found.
    """

    def __init__(self, seen: Mapping[Path, int]) -> None:
        found = ", ".join(f"Java {version} in {home}" for home, version in seen.items()) or "no Java"
        remedy = "On Debian and Ubuntu: apt-get install openjdk-17-jre-headless. Elsewhere: install it, set JAVA_HOME"
        super().__init__("Spark", "Java 17 or 21 on this machine", found, remedy)
        self.seen = dict(seen)


def find_java_home(environment: Mapping[str, str] = os.environ, places: tuple[str, ...] = PLACES) -> Path:
    """Return the folder of a Java runtime for Spark.

    Args:
        environment: with JAVA_HOME and PATH.
        places: folders whose subfolders are Java runtimes.

    Raises:
        NoJava: no runtime of a supported version was found.
    """
    seen: dict[Path, int] = {}
    for home in _candidates(environment, places):
        version = _version_of(home)
        if version in VERSIONS:
            return home
        if version:
            seen[home] = version
    raise NoJava(seen)


def use_java() -> Path:
    """Find Java and configure Spark processes of this process to use it; return its folder.

    Raises:
        NoJava: no runtime of a supported version was found.
    """
    home = find_java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def _candidates(environment: Mapping[str, str], places: tuple[str, ...]) -> Iterator[Path]:
    if given := environment.get("JAVA_HOME"):
        yield Path(given)
    if program := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(program).resolve().parent.parent
    for place in places:
        for folder in sorted(Path(place).glob("*")):
            yield from (folder, folder / "Contents" / "Home")


def _version_of(home: Path) -> int | None:
    """Return the version of the Java in a folder; None if it has no executable Java."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        found = _VERSION.search((home / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return int(found[1]) if found else None
