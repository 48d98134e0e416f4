"""Find the words of this project's former private dialect in docstrings, comments, texts, test names and documents.

The list is small and mechanical: words that a reader who knows Raft and Kafka would have to translate. A use that is
plain English after all is listed in `LEGITIMATE` with its reason. Folders that are not yet clean are listed in
`plain_english.txt` with their number of findings, and that number only falls.

`python -m tests.support.plain_english [FOLDER...]` lists the findings; with `--lower` it writes today's numbers where
they are lower.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
UNCLEAN = Path(__file__).with_name("plain_english.txt")
READ = {".py", ".md", ".proto", ".txt", ".toml", ".yml", ".sh", ".c", ".h", ".java", ".service"}
FOLDERS = (
    *("store", "dledger", "commitlog", "cluster", "pipeline"),
    *("tests", "scripts", "docs", "proto", "deploy", ".github", ".ci"),
)
TOP = ("pyproject.toml", "mkdocs.yml", "Makefile", "Dockerfile")

# Each alternative with its plain word. "behind" alone is dialect for "after"; a follower may lag or fall behind.
DIALECT = re.compile(
    r"""\b(
      (?<!\bfar\ )(?<!\bfalls\ )(?<!\bfall\ )(?<!\bfell\ )(?<!\bfallen\ )(?<!\bfalling\ )
      (?<!\blags\ )(?<!\blag\ )(?<!\blagging\ )behind   # after
    | hears? | heard | hearsay                      # receives, received; unconfirmed
    | tells? | telling | told                       # reports, sends, answers, acknowledged
    | stands?(?!\ for\ election) | stood | standing(?!\ for\ election)  # is, is stored, stops, campaigns
    | anew | as\ ever                               # again, as usual
    | (?:goes|go|going|gone|went)\ on               # continues
    | who | whom | whoever | nobody | somebody | anybody   # people, never processes
    | so\ many | so\ long(?!\ as) | so\ far\ as | how\ far   # how many, until then, the position of
    | (?:has|have|had)\ not\ what | what\ \w+\ (?:has|have)\ not | for\ want\ of | wanting
    | (?<=\"{3})(?:Return|Yield)\ (?:what|where|who|which|how\ many)   # the noun: the offset of, the number of
    | for\ ever | lest | whence | bears? | bore | guests?                  # permanently; tolerates; non-members
    | made\ again | goes\ by\ it | is\ not\ there   # rebuilt; uses it; is missing
    | rooms? | believed? | believes   # space, capacity; trusts, accepts
    | (?:ends?|ended|exit|closed?|down|stops?)\ in\ order | lags\ far\ behind  # cleanly; whose log lags
    | of\ no\ use | is\ well | sick | wreck(?:s|ed)? | averagely   # useless; healthy; stalled; damaged; on average
    | leisurely | for\ good | all\ the\ same   # slow; permanently; nevertheless
    | (?:the|an?|its|their|new|\w+'s)\ begin(?!\ (?:index|offset|time|step)|\()   # the start
    | mends? | mending | promis(?:e|es|ed|ing) | gave\ up\ on   # repair, correct; guarantee, acknowledge; failed
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Use:
    """A word of the list that is plain English where it is used."""

    file: str
    phrase: str
    reason: str


# A use counts as legitimate where the line holds the phrase.
LEGITIMATE = (
    Use("tests/support/plain_english.py", "", "the list itself"),
    Use("tests/test_architecture.py", "Who leads", "input of the test of the list"),
    Use("tests/test_architecture.py", '(1, "Who")', "expected findings of that test"),
)

# Comments and string literals, in the order in which they begin; what lies between them is code.
_PROSE_OF_PYTHON = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<prefix>\b[rbuf]{1,2})?(?P<string>\"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3}
          | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
      | (?P<test>\bdef[ ]test_\w+)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_NAME_IN_PROSE = re.compile(r"`[^`\n]+`|--[\w-]+")
_VALUE_IN_TEXT = re.compile(r"(?<!\{)\{[^{}\n]*\}")


@dataclass(frozen=True, slots=True)
class Finding:
    """A phrase of the dialect: its file (relative to the root), its line (from 1), and the line's text."""

    file: str
    line: int
    phrase: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.phrase!r} in: {self.text}"


def _blank(match: re.Match[str]) -> str:
    """Return as many characters that are no word, so that positions stay."""
    return "." * len(match[0])


def _prose_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield the position and the text of each comment, string literal and test name.

    A literal without a blank is a name (a key, an option, an event of the log), and names are interfaces.
    """
    for match in _PROSE_OF_PYTHON.finditer(source):
        text = match[0]
        if match["test"]:
            yield match.start(), text.replace("_", " ")
        elif match["comment"] or " " in text:
            is_formatted = "f" in (match["prefix"] or "").lower()
            yield match.start(), _VALUE_IN_TEXT.sub(_blank, text) if is_formatted else text


def findings_of(name: str, source: str) -> Iterator[Finding]:
    """Yield the phrases of one source; `name` is its file, relative to the root."""
    prose = _prose_of_python(source) if name.endswith(".py") else [(0, source)]
    starts = [0, *(match.end() for match in re.finditer("\n", source))]
    lines = source.split("\n")
    allowed = [use.phrase for use in LEGITIMATE if use.file == name]
    for start, text in prose:
        for match in DIALECT.finditer(_NAME_IN_PROSE.sub(_blank, text)):
            line = bisect_right(starts, start + match.start())
            if not any(phrase in lines[line - 1] for phrase in allowed):
                yield Finding(name, line, match[0], lines[line - 1].strip())


def files() -> list[Path]:
    """Return the files that people write and read (no generated stubs)."""
    nested = [file for name in FOLDERS for file in (ROOT / name).rglob("*") if file.suffix in READ]
    top = [*ROOT.glob("*.md"), *(ROOT / name for name in TOP)]
    kept = [file for file in [*top, *nested] if "_pb2" not in file.stem and file != UNCLEAN]
    return sorted(kept)


@cache
def findings() -> list[Finding]:
    """Return every phrase of the dialect, by file and line."""
    found: list[Finding] = []
    for file in files():
        source = file.read_text(encoding="utf-8")
        if DIALECT.search(source.replace("_", " ")):
            found.extend(findings_of(str(file.relative_to(ROOT)), source))
    return found


def by_folder(found: list[Finding]) -> Counter[str]:
    """Count the findings of each folder; files at the top count as `.`."""
    return Counter(str(Path(finding.file).parent) for finding in found)


def unclean() -> dict[str, int]:
    """Return the folders that are not yet clean, each with the number of findings that it may still have."""
    rows = [line.split() for line in UNCLEAN.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {folder: int(number) for folder, number in rows}


def _write(numbers: dict[str, int]) -> None:
    """Write the table; with a blank line after each row, changes of neighbouring rows do not conflict in git."""
    head = "# Words of the private dialect in each folder; numbers only fall (tests/support/plain_english.py).\n\n"
    rows = (f"{folder} {number}\n\n" for folder, number in sorted(numbers.items()) if number)
    UNCLEAN.write_text((head + "".join(rows)).rstrip("\n") + "\n", "utf-8")


def main(arguments: list[str]) -> None:
    """List the findings of the folders that are named (default: all), or lower the table's numbers to today's."""
    found = findings()
    if arguments == ["--lower"]:
        today, before = by_folder(found), unclean()
        _write({folder: min(number, today[folder]) for folder, number in before.items()})
        return
    for finding in found:
        if not arguments or finding.file.startswith(tuple(arguments)):
            print(finding)


if __name__ == "__main__":
    main(sys.argv[1:])
