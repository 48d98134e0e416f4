"""Packs the files that Spark's hosts need for the pipeline: our modules as a zip, or an environment as an archive.

    python scripts/spark_package.py zip dist/dledger.zip      for --py-files; hosts have numpy, pyarrow and the rest
    python scripts/spark_package.py environment dist/env.tar.gz    for --archives; hosts have only Python

Native libraries (numpy, pyarrow) cannot be imported from a zip. If the hosts do not have them, send an environment: a
copy of `.venv` with our packages copied instead of linked, and relocatable scripts. The hosts need the same Python at
the same path.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("store", "dledger", "commitlog", "cluster", "pipeline")
MODULES = ("pyspark_dledger.py", "pyspark_dledger_lake.py")
SUFFIXES = {".py", ".css", ".properties"}


def main() -> int:
    """Write the requested file."""
    parser = argparse.ArgumentParser(description="Pack the pipeline for Spark's hosts.")
    parser.add_argument("kind", choices=("zip", "environment"))
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    count = write_zip(arguments.file) if arguments.kind == "zip" else write_environment(arguments.file)
    print(f"{arguments.file}: {count} files, {arguments.file.stat().st_size / 1e6:,.1f} MB")
    return 0


def sources() -> Iterator[tuple[Path, str]]:
    """Yield our files, with their names in a package."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path, str(path.relative_to(ROOT))
    for module in MODULES:
        if (ROOT / module).exists():
            yield ROOT / module, module


def write_zip(file: Path) -> int:
    """Write our modules; return the number of files."""
    count = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, name in sources():
            archive.write(path, name)
            count += 1
    return count


def write_environment(file: Path) -> int:
    """Write this environment, with our modules in its libraries; return the number of files."""
    environment = Path(sys.prefix)
    libraries = next(environment.glob("lib/python*/site-packages"))
    count = 0
    with tarfile.open(file, "w:gz", compresslevel=3) as archive:
        for path in sorted(environment.rglob("*")):
            # Links to the checkout, and packages that the hosts have with Spark.
            is_left_out = path.name.startswith(("_editable_", "__editable__")) or "__pycache__" in path.parts
            is_of_spark = libraries / "pyspark" / "jars" in path.parents
            # Packages for declarative pipelines, which hosts do not need (see Makefile).
            is_apart = environment / "pandas" in path.parents
            if not (is_left_out or is_of_spark or is_apart or path.is_dir()):
                archive.add(path, str(path.relative_to(environment)), recursive=False)
                count += 1
        for path, name in sources():
            archive.add(path, str((libraries / name).relative_to(environment)))
            count += 1
    return count


if __name__ == "__main__":
    sys.exit(main())
