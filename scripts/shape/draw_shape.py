"""Draws the plots of a measurement, and writes its tables into the documentation.

Example:
    python scripts/shape/draw_shape.py bench/shape-2026-11-28T12-00-00.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shape_plots import draw
from shape_results import Results, ResultsUnreadable
from shape_tables import IMAGES, image_of, page_of

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = "benchmarks.md"
BEGIN: Final = "<!-- figures: from `make bench-shape` -->"
END: Final = "<!-- end of figures of the shape -->"


class PageUnfit(Exception):
    """The page lacks the marks between which the tables belong; the text has the file and the marks."""


def with_figures(page: str, figures: str, name: str) -> str:
    """Return a page whose text between the marks is replaced.

    Raises:
        PageUnfit: a mark is missing.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PageUnfit(f"{name}: expected the lines {BEGIN!r} and {END!r}, between which the figures belong")
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"


def write(results: Results, docs: Path) -> list[Path]:
    """Write a picture for each measured axis, and the tables into the page; return the written files.

    Raises:
        PageUnfit: the page lacks a mark.
    """
    page = docs / PAGE
    text = with_figures(page.read_text(encoding="utf-8"), page_of(results), str(page))
    written = []
    (docs / IMAGES).mkdir(exist_ok=True)
    for name, points in results.points.items():
        if points:
            file = docs / IMAGES / image_of(name)
            file.write_text(draw(name, points), encoding="utf-8")
            written.append(file)
    page.write_text(text, encoding="utf-8")
    return [*written, page]


def main(words: Sequence[str] | None = None) -> int:
    """Draw the results of a file; return 2 if that is not possible."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("file", type=Path, help="results of bench_shape.py")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page; default: docs of this checkout")
    parser.add_argument("--print", action="store_true", dest="is_printed", help="print the tables, write nothing")
    options = parser.parse_args(words)
    try:
        results = Results.load(options.file)
        if options.is_printed:
            print(page_of(results))
            return 0
        for file in write(results, options.docs):
            print(file)
    except (ResultsUnreadable, PageUnfit, OSError) as error:
        print(f"draw_shape: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
