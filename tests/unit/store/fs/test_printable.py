"""Names in files and requests cannot control the operator's terminal."""

import pytest

from store.fs.printable import printable
from store.model.finding import Area, Finding


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b é", "a b é"),
        ("a\nERROR forged", r"a\nERROR forged"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\u2028\u202e", r"\u2028\u202e"),
        (b"\xff".decode("utf-8", "surrogateescape"), r"\udcff"),
    ],
)
def test_characters_that_control_a_terminal_are_written_as_escapes(text, shown):
    assert printable(text) == shown
    assert str(Finding(Area.FILES, f"/store/{text}", 0, "a", "b", "c", "d")).startswith(f"/store/{shown}: at byte 0")


def test_listed_characters_are_kept():
    assert printable("one\ntwo\r", kept="\n") == "one\ntwo\\r"
