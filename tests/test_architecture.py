"""The rules that hold for the whole tree: imports, sizes, names, documents, pinned versions.

Each test collects every offender before it fails, so that one run shows all there is to correct.
"""

from __future__ import annotations

import ast
import importlib.metadata
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cluster.api.gates import metrics as gate_metrics
from cluster.api.name_servers import metrics as name_server_metrics
from cluster.broker import metric_table as broker_metrics
from cluster.broker import rocketmq_metrics
from cluster.config.broker_options import ServerOptions
from cluster.process import page_metrics
from cluster.protocol.errors import CAUSES
from dledger import metrics
from dledger.errors import ResponseCode
from dledger.security import metrics as certificate_metrics
from tests.support import plain_english

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTION = "dledger-py"
PACKAGES = ("store", "dledger", "commitlog", "cluster", "pipeline")
CODE_LINES_MAX = 300
FOLDER_MODULES_MAX = 20
FUNCTION_LINES_MAX = 60

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
# Marks of unfinished work; written apart so that this file passes its own test.
UNFINISHED = re.compile(r"\b(FIX" r"ME|TO" r"DO|XX" r"X)\b")
# Package registries, and folders of a developer's machine.
FOREIGN_ADDRESSES = re.compile(
    r"pypi\." r"org|python" r"hosted|index-" r"url|find-" r"links|trusted-" r"host|/ro" r"ot/|/ho" r"me/\w|/wo" r"rk/"
)
# What looks like a module and is a file or a table.
NO_MODULES = frozenset({"cluster.json", "dledger.messages", "dledger.tar.xz"})
_SECURED_ELSEWHERE = frozenset(
    {"insecure_channel", "secure_channel", "add_insecure_port", "add_secure_port", "ssl_channel_credentials"}
)
_TARGET = re.compile(r"^([a-z][a-z-]*):(?!=)(.*)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def _python_files() -> list[Path]:
    """Return the sources that people write (no generated stubs)."""
    folders = [ROOT / name for name in (*PACKAGES, "tests", "scripts")]
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    return [file for file in files if not file.stem.endswith(("_pb2", "_pb2_grpc"))]


class _Syntax(NamedTuple):
    """The parts of one source that the tests below look at; the tree itself would need a hundred times the memory.

    Attributes:
        docstring: of the module; None: it has none.
        functions: first line, name and number of lines of each function.
        classes: first line and name of each class of the module itself.
        attributes: line and name of each attribute in `_SECURED_ELSEWHERE`.
        public: line and name of each undecorated public function or class of the module itself.
        used: names that the module reads, imports, or has in a text such as "module:function".
    """

    docstring: str | None
    functions: list[tuple[int, str, int]]
    classes: list[tuple[int, str]]
    attributes: list[tuple[int, str]]
    public: list[tuple[int, str]]
    used: frozenset[str]


@cache
def _syntax() -> dict[Path, _Syntax]:
    """Parse each source once for all tests: that takes most of their time."""
    return {file: _syntax_of(ast.parse(file.read_text(encoding="utf-8"))) for file in _python_files()}


def _syntax_of(tree: ast.Module) -> _Syntax:
    functions, attributes = [], []
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
        elif isinstance(node, ast.Attribute):
            used.add(sys.intern(node.attr))
            if node.attr in _SECURED_ELSEWHERE:
                attributes.append((node.lineno, node.attr))
        elif isinstance(node, ast.Name):
            used.add(sys.intern(node.id))
        elif isinstance(node, ast.alias):
            used.add(sys.intern(node.name))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value[:80]:
            used.update(re.findall(r"\w+", node.value))
    classes = [(node.lineno, node.name) for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [
        (node.lineno, node.name)
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if not node.name.startswith("_") and not node.decorator_list
    ]
    return _Syntax(ast.get_docstring(tree), functions, classes, attributes, public, frozenset(used))


def _is_known(dotted: str) -> bool:
    """Return whether a dotted name leads to a module of ours, to a word in its text, or is no module at all."""
    if dotted in NO_MODULES or ".v1" in dotted:
        return True
    place, *rest = (ROOT / part for part in dotted.split("."))
    names = [part.name for part in rest]
    while names and (place / names[0]).is_dir():
        place /= names.pop(0)
    if names and (place / f"{names[0]}.py").is_file():
        place /= f"{names.pop(0)}.py"
    file = place / "__init__.py" if place.is_dir() else place
    return not names or re.search(rf"\b{names[0]}\b", file.read_text(encoding="utf-8")) is not None


def _text_files() -> list[Path]:
    suffixes = {".py", ".pyi", ".md", ".toml", ".txt", ".proto", ".svg", ".yml", ".cfg"}
    folders = [ROOT / name for name in (*PACKAGES, "tests", "scripts", "docs", "proto", ".ci")]
    nested = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    top = [file for file in ROOT.iterdir() if file.is_file()]
    names = {"Makefile", "run", ".gitignore"}
    return sorted(file for file in [*top, *nested] if file.suffix in suffixes or file.name in names)


def _documents() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def _without_code(markdown: str) -> str:
    """Drop fenced blocks: a comment of a shell example is no title, and an index expression no link."""
    return re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)


def _named(file: Path) -> str:
    return str(file.relative_to(ROOT))


# ------------------------------------------------------------------------------------------------------- sources


def test_import_contracts_are_kept() -> None:
    # In a process of its own: it sets up logging, and that would silence the loggers of tests that run after it.
    program = "import sys; from importlinter import cli; sys.exit(cli.lint_imports(no_cache=True))"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def _code_lines(source: str) -> int:
    """Count the lines that hold code: no blanks, comments, imports or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        is_documented = isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
        left_out = node.body[0] if is_documented else node
        if is_documented or isinstance(node, ast.Import | ast.ImportFrom):
            lines.difference_update(range(left_out.lineno, (left_out.end_lineno or left_out.lineno) + 1))
    return len(lines)


def test_files_have_at_most_300_lines_of_code() -> None:
    sources = {_named(file): file.read_text(encoding="utf-8") for file in _python_files()}
    # A source has no more lines of code than lines, and tokens take a hundred times as long to read.
    long = {name: source for name, source in sources.items() if source.count("\n") >= CODE_LINES_MAX}
    lengths = {name: _code_lines(source) for name, source in long.items()}

    assert len(long) > 0
    assert {} == {name: length for name, length in lengths.items() if length > CODE_LINES_MAX}


def test_folders_have_at_most_20_modules() -> None:
    modules = Counter(_named(file.parent) for file in _python_files())

    assert {} == {name: count for name, count in modules.items() if count > FOLDER_MODULES_MAX}


def test_functions_have_at_most_60_lines() -> None:
    lengths = {
        f"{_named(file)}:{line} {name}": length
        for file, syntax in _syntax().items()
        for line, name, length in syntax.functions
    }

    assert {} == {name: length for name, length in lengths.items() if length > FUNCTION_LINES_MAX}


def test_class_name_has_one_meaning() -> None:
    """Two classes of one name are confused by readers, and an `except` with the wrong import catches nothing."""
    modules: dict[str, list[str]] = defaultdict(list)
    for file, syntax in _syntax().items():
        if file.relative_to(ROOT).parts[0] in PACKAGES:
            for line, name in syntax.classes:
                if not name.startswith("_"):
                    modules[name].append(f"{_named(file)}:{line}")
    assert {} == {name: places for name, places in modules.items() if len(places) > 1}


def test_public_functions_and_classes_are_used_outside_of_tests() -> None:
    """By the product, by a script, or by readers of the documents: functions that only tests use belong to the tests.

    The test compares names, so a function is not found if another one has its name.
    """
    of_product = {file: syntax for file, syntax in _syntax().items() if file.relative_to(ROOT).parts[0] in PACKAGES}
    used = {name for file, syntax in _syntax().items() if ROOT / "tests" not in file.parents for name in syntax.used}
    texts = [*_documents(), ROOT / "pyproject.toml"]
    used |= {word for text in texts for word in re.findall(r"\w+", text.read_text(encoding="utf-8"))}
    unused = [
        f"{_named(file)}:{line} {name}"
        for file, syntax in of_product.items()
        for line, name in syntax.public
        if name not in used
    ]

    assert [] == unused


def test_every_package_says_what_is_in_it_and_what_is_not() -> None:
    """A docstring of one paragraph says only the first; generated packages have nothing more to say."""
    packages = {
        _named(file.parent): syntax.docstring or ""
        for file, syntax in _syntax().items()
        if file.name == "__init__.py" and file.parent.name != "v1" and file.relative_to(ROOT).parts[0] in PACKAGES
    }

    assert [] == [name for name, docstring in packages.items() if "\n\n" not in docstring]


def test_every_module_has_a_docstring() -> None:
    silent = [_named(file) for file, syntax in _syntax().items() if not syntax.docstring]

    assert [] == silent


def test_modules_named_in_texts_exist() -> None:
    """A dotted name of ours in backticks is a module, or is found in the text of the module before it."""
    name = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)`")
    texts = [file for file in _text_files() if file.suffix in {".py", ".md", ".txt"}]
    found = {(match[1], file) for file in texts for match in name.finditer(file.read_text(encoding="utf-8"))}
    wrong = [f"{file.relative_to(ROOT)}: {dotted}" for dotted, file in found if not _is_known(dotted)]

    assert [] == sorted(wrong)


def test_nothing_is_left_unfinished() -> None:
    assert [] == list(_lines_matching(UNFINISHED))


def test_no_address_of_a_registry_or_of_a_machine_is_recorded() -> None:
    assert [] == list(_lines_matching(FOREIGN_ADDRESSES))


def _lines_matching(pattern: re.Pattern[str]) -> Iterator[str]:
    for file in _text_files():
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if pattern.search(line):
                yield f"{_named(file)}:{number}: {line.strip()}"


# ------------------------------------------------------------------------------------------------- distributions


@pytest.mark.parametrize("package", PACKAGES)
def test_top_level_names_belong_to_this_distribution_only(package: str) -> None:
    owners = importlib.metadata.packages_distributions().get(package)

    # An editable install lists no packages: then no other distribution may.
    assert owners is None or set(owners) == {DISTRIBUTION}


def test_folders_that_are_no_packages_are_not_importable() -> None:
    found = [name for name in ("proto", "tests", "scripts", "docs") if (ROOT / name / "__init__.py").exists()]

    assert [] == found


_LOCKED = re.compile(r"([\w.-]+)==(\S+)(?: ; [^\\]+?)?(?:\s+--hash=sha256:[0-9a-f]{64})+")


def test_every_dependency_is_pinned_and_installed_as_pinned() -> None:
    pins = dict(_pins())
    installed = _closure({(DISTRIBUTION, ("dev",)), ("hatchling", ()), ("editables", ())})
    del installed[DISTRIBUTION]

    assert {name: pins.get(name) for name in installed} == installed


def test_every_locked_package_has_its_hashes_and_the_version_of_the_constraints() -> None:
    pins = dict(_pins())
    locked = {path.stem: dict(_locked(path)) for path in sorted((ROOT / "requirements").glob("*.txt"))}
    assert {"browser", "build", "dev", "docs", "fuzz", "pandas", "runtime", "supply"} == set(locked)
    found = {name: version for each in locked.values() for name, version in each.items()}
    assert {name: pins[name] for name in found if name in pins} == {name: found[name] for name in found if name in pins}
    assert pins.keys() - found.keys() == set()

    installed = _closure({(DISTRIBUTION, ("dev",)), ("hatchling", ()), ("editables", ())})
    del installed[DISTRIBUTION]
    assert installed.keys() - locked["build"].keys() - locked["dev"].keys() == set()
    runtime = _closure({(DISTRIBUTION, ())})
    assert runtime.keys() - {DISTRIBUTION} - locked["runtime"].keys() == set()


def _locked(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and version of each package of a lock file, all of which have hashes."""
    lines = path.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    for line in lines:
        if line and not line.startswith("#"):
            found = _LOCKED.fullmatch(line)
            assert found, f"{path}: no pinned package with hashes: {line[:80]}"
            yield canonicalize_name(found[1]), found[2]


def _pins() -> Iterator[tuple[str, str]]:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            yield canonicalize_name(name), version


def _closure(wanted: set[tuple[str, tuple[str, ...]]]) -> dict[str, str]:
    """Return name and installed version of `wanted` (name, extras) and of all that they need here."""
    found: dict[str, str] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while wanted:
        name, extras = wanted.pop()
        seen.add((name, extras))
        distribution = importlib.metadata.distribution(name)
        found[canonicalize_name(name)] = distribution.version
        for requirement in map(Requirement, distribution.requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                wanted |= {(canonicalize_name(requirement.name), tuple(sorted(requirement.extras)))} - seen
    return found


def test_one_place_opens_grpc_channels_and_one_adds_ports() -> None:
    """A channel that is opened elsewhere would stay plain when TLS is switched on."""
    offenders = {
        f"{_named(file)}:{line} {name}"
        for file, syntax in _syntax().items()
        if file.parent != ROOT / "dledger" / "security" and ROOT / "tests" not in file.parents
        for line, name in syntax.attributes
    }

    assert offenders == set(), "use dledger.security.channels and dledger.security.server_port"


# --------------------------------------------------------------------------------------------- documents, Makefile


def test_every_document_has_one_title() -> None:
    titles = {_named(file): _title_count(file) for file in _documents()}

    assert {} == {name: count for name, count in titles.items() if count != 1}


def _title_count(file: Path) -> int:
    return len(re.findall(r"^# \S", _without_code(file.read_text(encoding="utf-8")), flags=re.MULTILINE))


def test_glossary_has_one_row_for_each_term() -> None:
    rows = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    # The first row has the headings.
    _, *terms = (row.split("|")[1].strip() for row in rows if row.startswith("|"))

    assert {} == {term: count for term, count in Counter(terms).items() if count > 1}


def test_every_link_of_a_document_has_a_target() -> None:
    dead = [
        f"{_named(file)} -> {target}"
        for file in _documents()
        for target in _LINK.findall(_without_code(file.read_text(encoding="utf-8")))
        if "://" not in target and not (file.parent / target).exists()
    ]

    assert [] == dead


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(list(ServerOptions.model_fields), id="settings"),
        pytest.param([row.name for row in metrics.TABLE], id="metrics"),
        pytest.param([row.name for row in broker_metrics.TABLE], id="metrics-of-brokers"),
        pytest.param([row.name for row in rocketmq_metrics.ROCKETMQ_TABLE], id="metrics-under-rocketmqs-names"),
        pytest.param([row.name for row in gate_metrics.TABLE], id="metrics-of-gates"),
        pytest.param([row.name for row in name_server_metrics.TABLE], id="metrics-of-name-servers"),
        pytest.param([row.name for row in page_metrics.TABLE], id="metrics-of-pages"),
        pytest.param([row.name for row in certificate_metrics.TABLE], id="metrics-of-certificates"),
        pytest.param([f"{code.value} {code.name}" for code in ResponseCode], id="response codes"),
        pytest.param([f"| {cause.name} | {row.status.name} |" for cause, row in CAUSES.items()], id="causes"),
    ],
)
def test_operations_page_explains_every_name(names: list[str]) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")

    assert [] == [name for name in names if name not in page]


def test_every_make_target_has_a_help_text() -> None:
    assert [] == [name for name, rest in _make_targets().items() if "## " not in rest]


def test_documents_name_only_make_targets_that_exist() -> None:
    known = _make_targets()
    unknown = {
        f"{_named(file)}: make {target}"
        for file in _documents()
        for target in re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        for target in target
        if target and target not in known
    }

    assert set() == unknown


def _make_targets() -> dict[str, str]:
    return dict(_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))


# How many entries each release has: a release is closed, and a new entry belongs under "Unreleased".
RELEASED = {"0.1.0": 232}


def test_released_sections_of_the_changelog_are_dated_and_closed() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.split(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", text, flags=re.MULTILINE)[1:]
    entries = [len(re.findall(r"^- ", section, re.MULTILINE)) for section in sections[1::2]]

    assert dict(zip(sections[::2], entries, strict=True)) == RELEASED


# ------------------------------------------------------------------------------------------------------- prose


def test_no_folder_gains_words_of_the_private_dialect() -> None:
    found, allowed = plain_english.findings(), plain_english.unclean()
    more = {folder for folder, number in plain_english.by_folder(found).items() if number > allowed.get(folder, 0)}

    listed = "\n".join(str(finding) for finding in found if str(Path(finding.file).parent) in more)
    assert not more, f"say it in plain English (of each folder all findings are listed):\n{listed}"


def test_the_numbers_of_unclean_folders_are_lowered_as_soon_as_they_can_be() -> None:
    today = plain_english.by_folder(plain_english.findings())
    lower = {folder: today[folder] for folder, number in plain_english.unclean().items() if today[folder] < number}

    assert lower == {}, "run `python -m tests.support.plain_english --lower` and commit what it changes"


def test_the_word_list_reads_prose_and_leaves_names_alone() -> None:
    source = (
        '"""Who leads\ntells `who` all."""\nbehind = f"{behind}"  # anew\ndef test_it_goes_on(): x = {"behind": 1}\n'
    )

    found = [(finding.line, finding.phrase) for finding in plain_english.findings_of("some.py", source)]

    assert found == [(1, "Who"), (2, "tells"), (3, "anew"), (4, "goes on")]


def test_every_legitimate_use_of_the_word_list_is_used() -> None:
    unused = [
        f"{use.file}: {use.phrase!r}"
        for use in plain_english.LEGITIMATE
        if not (ROOT / use.file).exists() or use.phrase not in (ROOT / use.file).read_text("utf-8")
    ]

    assert unused == []
