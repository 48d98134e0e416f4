"""JSON of peers, files and users is read, or refused with one kind of error."""

import pytest

from commitlog.conversion.base_log_files import manifest_from_json
from dledger.entries.format.codec import decode_membership
from dledger.storage.membership_codec import MembershipUnreadable
from store.fs.foreign_json import foreign_json

DEEP = "[" * 100_000


def test_json_is_read():
    assert foreign_json('{"a": [1]}') == foreign_json(b'{"a": [1]}') == {"a": [1]}


@pytest.mark.parametrize("text", ["", "{", DEEP, DEEP.encode(), b"\xff", "9" * 10_000])
def test_invalid_json_is_refused_with_one_kind_of_error(text):
    with pytest.raises(ValueError, match=r"."):
        foreign_json(text)


def test_endlessly_nested_json_is_refused_with_a_typed_error():
    with pytest.raises(ValueError, match="fewer levels"):
        manifest_from_json(DEEP)
    with pytest.raises(MembershipUnreadable, match="fewer levels"):
        decode_membership(DEEP.encode(), "entry 7")
