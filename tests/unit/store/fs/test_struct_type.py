"""A numpy type made from a struct decodes the struct's bytes."""

import struct

import numpy as np
import pytest

from commitlog.record.record import FIELDS
from commitlog.record.rows import FIELD_TYPES, HEADER_TYPE
from dledger.entries.format.entry import HEADER
from store.fs.struct_type import numpy_type
from store.queues.unit import UNIT, UNIT_TYPE

LAYOUTS = [(HEADER, HEADER_TYPE), (UNIT, UNIT_TYPE), *((FIELDS[bits], FIELD_TYPES[bits]) for bits in FIELDS)]


@pytest.mark.parametrize(("layout", "kind"), LAYOUTS, ids=[layout.format for layout, _ in LAYOUTS])
def test_fields_of_a_type_are_those_of_its_struct(layout, kind):
    raw = bytes(range(200, 200 - layout.size, -1))

    (row,) = np.frombuffer(raw, kind)

    found = [bytes(value) if isinstance(value, np.void) else int(value) for value in row]
    assert tuple(found) == layout.unpack(raw)


def test_zeros_at_the_end_of_bytes_are_kept():
    (row,) = np.frombuffer(b"\x01\x00\x00\x00\x07", numpy_type(struct.Struct(">4ss"), ("host", "more")))

    assert bytes(row["host"]) == b"\x01\x00\x00\x00"


def test_each_field_has_a_name():
    with pytest.raises(ValueError, match="zip"):
        numpy_type(struct.Struct(">iq"), ("one",))
