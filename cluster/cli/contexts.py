"""Named contexts of the command line: saved addresses and a group, in one TOML file.

The file is `DLEDGER_CONFIG`, or `dledger/contexts.toml` under `XDG_CONFIG_HOME` (`~/.config` where that is not set).
The file decides where messages are sent, so a file that another user owns or may write is refused, as by ssh. Only a
regular file of at most `SIZE_BYTES_MAX` is read; a change is written to a new file of mode 0600, which replaces the old
one.

Not here: the use of contexts by commands, and their precedence (`cluster.cli.client_target`).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FILE_VARIABLE: Final = "DLEDGER_CONFIG"
NAME_VARIABLE: Final = "DLEDGER_CONTEXT"
# A context has some 300 bytes, so this is enough for hundreds of contexts; a larger file is not one of ours.
SIZE_BYTES_MAX: Final = 256 << 10

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_HEADER: Final = re.compile(r"\s*\[\s*contexts\s*\.\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*\]")
# Settings that name files.
FILES: Final = ("tls_ca", "tls_cert", "tls_key", "token_file")
_PLACES: Final = ("endpoints", "name_servers")
_TEXT_MAX: Final = 4096
_FILE_MODE: Final = 0o600
_FIRST_LINES: Final = (
    "# Contexts of the command `dledger`. `dledger context add`, `use` and `remove` write this file again; they keep\n"
    "# the settings, not the comments.\n"
)


class ContextError(Exception):
    """A context, or the file of contexts, cannot be used; the message has the file, the line, and what to do."""


@dataclass(frozen=True, slots=True)
class Context:
    """The target of commands.

    Attributes:
        name: letters, digits, `_` and `-`; at most 64.
        endpoints: `host:port` of nodes of one group (a log or a broker), comma separated; empty with name servers.
        name_servers: `host:port` of all name servers, comma separated; empty with endpoints.
        group: the replication group, or the broker's name; empty: not set.
        tls_ca, tls_cert, tls_key: absolute paths of the files that `--tls-ca`, `--tls-cert` and `--tls-key` name.
        tls_server_name: of `--tls-server-name`.
        token_file: absolute path of the file that `--token-file` names.
        description: free text.
    """

    name: str
    endpoints: str = ""
    name_servers: str = ""
    group: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_server_name: str = ""
    token_file: str = ""
    description: str = ""

    def settings(self) -> dict[str, str]:
        """Return the settings that have a value, by name, in the order of the file."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Contexts:
    """The content of the file.

    Attributes:
        path: path of the file, which need not exist.
        current: name of the default context; empty: none.
        by_name: all contexts, in the order of the file.
    """

    path: Path
    current: str
    by_name: Mapping[str, Context]

    def named(self, name: str) -> Context:
        """Return the context with a name.

        Raises:
            ContextError: there is no context with that name.
        """
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ContextError(
                f"there is no context {name!r} in {self.path}, which has {known}; create it with `dledger context add`"
            )
        return found


@dataclass(slots=True)
class Changes:
    """The new content of the file; see `Contexts`."""

    path: Path
    current: str
    by_name: dict[str, Context]


def check_context(context: Context) -> None:
    """Check a context before it is written.

    Raises:
        ContextError: the name or a setting is invalid.
    """
    if not _NAME.fullmatch(context.name):
        raise ContextError(
            f"context name {context.name!r}: expected at most 64 letters, digits, - and _, the first a letter or digit"
        )
    _check_settings(context, lambda _key: "")


def contexts_path() -> Path:
    """Return the path of the file.

    Raises:
        ContextError: there is no home directory.
    """
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named)
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # the XDG specification requires that relative paths are ignored
        try:
            base = Path.home() / ".config"
        except RuntimeError as error:
            raise ContextError(f"no home directory for contexts: set {FILE_VARIABLE} to a file") from error
    return base / "dledger" / "contexts.toml"


def load_contexts(*, is_new_allowed: bool = False) -> Contexts:
    """Read the file; if it does not exist, there are no contexts.

    Args:
        is_new_allowed: whether `DLEDGER_CONFIG` may name a file that does not exist yet, because it will be written.

    Raises:
        ContextError: the file cannot be read or trusted, or is not a file of contexts; or the file that
            `DLEDGER_CONFIG` names does not exist.
    """
    path = contexts_path()
    text = _read(path)
    if text is None:
        if os.environ.get(FILE_VARIABLE) and not is_new_allowed:
            raise ContextError(
                f"{path}: no such file. {FILE_VARIABLE} names it: unset {FILE_VARIABLE}, or create the file with "
                "`dledger context add`"
            )
        return Contexts(path, "", {})
    return _parse(path, text)


@contextmanager
def changed_contexts() -> Iterator[Changes]:
    """Change the file: yield its content for changes; it is written if the block ends without an exception.

    The directory is locked, so that two commands do not change the file concurrently.

    Raises:
        ContextError: the file cannot be read, trusted or written, or another command is changing it.
    """
    # A symbolic link is kept: users may store such files elsewhere.
    path = Path(os.path.realpath(contexts_path()))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ContextError(
            f"{path.parent}: {error.strerror}; contexts cannot be stored there. Set {FILE_VARIABLE} to another file"
        ) from error
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ContextError(f"{path}: another command is changing it; repeat the command") from error
        known = load_contexts(is_new_allowed=True)
        changes = Changes(path, known.current, dict(known.by_name))
        yield changes
        _write(path, Contexts(path, changes.current, changes.by_name))
    finally:
        os.close(directory)


def _read(path: Path) -> str | None:
    """Return the text of the file; None if it does not exist."""
    try:
        # Opening a named pipe without this flag would block until it has a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            _check_kind(path, found)
            content = os.read(descriptor, SIZE_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ContextError(f"{path}: {error.strerror}; check its owner and mode (`ls -l`)") from error
    if len(content) > SIZE_BYTES_MAX:
        raise ContextError(
            f"{path}: expected at most {SIZE_BYTES_MAX} bytes, found {found.st_size}: this is not a file of contexts. "
            "Move it away"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ContextError(f"{path}, line {line}: expected TOML in UTF-8, found other bytes. Move it away") from error


def _check_kind(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ContextError(f"{path}: expected a regular file of contexts, found another kind; move it away")
    if found.st_uid not in (0, os.geteuid()):
        raise ContextError(
            f"{path}: expected a file of your own (user id {os.geteuid()}), found one of user id {found.st_uid}, "
            f"which could redirect your messages. Set {FILE_VARIABLE} to a file of yours"
        )
    if found.st_mode & stat.S_IWOTH:
        raise ContextError(f"{path}: every user may write to it. Check its content, then run `chmod 600 {path}`")


def _parse(path: Path, text: str) -> Contexts:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number with thousands of digits
        raise ContextError(f"{path}: expected TOML, found: {error}. Edit that line, or move the file away") from error
    if unknown := sorted(set(document) - {"current", "contexts"}):
        raise _fault(path, text, "", unknown[0], f"expected `current` and [contexts.NAME], found {unknown[0]!r}")
    current, tables = document.get("current", ""), document.get("contexts", {})
    if not isinstance(tables, dict):
        raise _fault(path, text, "", "contexts", "expected tables [contexts.NAME]")
    by_name = {name: _context_of(path, text, name, table) for name, table in tables.items()}
    if not isinstance(current, str) or (current and current not in by_name):
        known = ", ".join(by_name) or "none"
        raise _fault(path, text, "", "current", f"expected one of the contexts ({known}), found {current!r}")
    return Contexts(path, current, by_name)


def _context_of(path: Path, text: str, name: str, table: Any) -> Context:
    known = [field.name for field in fields(Context) if field.name != "name"]
    if not _NAME.fullmatch(name) or not isinstance(table, dict):
        raise _fault(path, text, name, "", f"expected a table [contexts.NAME], found {name!r}")
    for key, value in table.items():
        if key not in known or not isinstance(value, str):
            raise _fault(path, text, name, key, f"expected texts {', '.join(known)}; found {key} = {value!r:.60}")
    context = Context(name, **table)
    _check_settings(context, lambda key: f"{path}, line {_line_of(text, name, key)}: ")
    return context


def _check_settings(context: Context, place_of: Callable[[str], str]) -> None:
    set_places = [key for key in _PLACES if getattr(context, key)]
    if len(set_places) != 1:
        found = "both" if set_places else "neither"
        raise ContextError(f"{place_of('')}context {context.name}: expected endpoints or name_servers, found {found}")
    for key, value in context.settings().items():
        if len(value) > _TEXT_MAX or not value.isprintable():
            raise ContextError(f"{place_of(key)}{key}: expected at most {_TEXT_MAX} printable characters")
        if key in FILES and not Path(value).is_absolute():
            raise ContextError(f"{place_of(key)}{key}: expected an absolute path, found {value!r}")
    from dledger.client.endpoints import parse_endpoints

    try:
        parse_endpoints(getattr(context, set_places[0]))
    except ValueError as error:
        raise ContextError(f"{place_of(set_places[0])}{set_places[0]}: {error}") from error


def _fault(path: Path, text: str, context: str, key: str, what: str) -> ContextError:
    return ContextError(f"{path}, line {_line_of(text, context, key)}: {what}. Edit that line, or move the file away")


def _line_of(text: str, context: str, key: str) -> int:
    """Return the number of the line that sets a key; if there is none, that of its table, or 1."""
    found, table = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("["):
            header = _HEADER.match(line)
            table = header[1] if header else line.strip().strip("[]").split(".")[0]
            if table == (context or key):
                found = number
        elif key and table == context and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
    return found


def _write(path: Path, contexts: Contexts) -> None:
    lines = [_FIRST_LINES]
    if contexts.current:
        lines.append(f"current = {_quoted(contexts.current)}\n")
    for context in contexts.by_name.values():
        check_context(context)
        settings = [f"{key} = {_quoted(value)}\n" for key, value in context.settings().items()]
        lines += [f"\n[contexts.{context.name}]\n", *settings]
    content = "".join(lines).encode()
    if len(content) > SIZE_BYTES_MAX:
        raise ContextError(
            f"{path}: expected at most {SIZE_BYTES_MAX} bytes of contexts, found more; remove some first"
        )
    # Imported here: every command reads contexts, and this import takes a tenth of a second.
    from store.fs.linux.files import OsFiles

    files = OsFiles()
    new = f"{path}.{os.getpid()}.new"
    try:
        Path(new).unlink(missing_ok=True)  # left by a crashed command with this process's id
        with _owner_only():
            files.create_from(new, [content])
        files.rename(new, str(path))
        files.sync_directory(str(path.parent))
    except (StoreError, OSError) as error:
        raise ContextError(f"{path}: not written ({error.__cause__ or error}); nothing changed") from error


@contextmanager
def _owner_only() -> Iterator[None]:
    """Create files with mode 0600; only for a process with one thread, because the umask is global."""
    mask = os.umask(0o777 & ~_FILE_MODE)
    try:
        yield
    finally:
        os.umask(mask)


def _quoted(text: str) -> str:
    """Return a text without control characters as a basic string of TOML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
