"""Properties as Arrow columns are what the reader of single messages makes of them, whatever the bytes."""

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.properties import decode_properties
from pipeline.property_columns import PropertyColumns

NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "namenamenameAAAAname", "namenamenameBBBBname", "é"])
REGULAR = st.dictionaries(NAMES, st.text("abc é#", min_size=1, max_size=6), max_size=5).map(
    lambda row: "".join(f"{name}\x01{value}\x02" for name, value in row.items()).encode()
)
ANY = st.lists(st.sampled_from([b"TAGS", b"KEYS", b"\x01", b"\x02", b"v", b"\xff"]), max_size=9).map(b"".join)


@given(st.lists(REGULAR, max_size=8) | st.lists(REGULAR | ANY, max_size=8))
@example([b"TAGS\x01a\x02TAGS\x01b\x02"])
@example([b"TAGS\x01a", b"\x02KEYS\x01b\x02"])
@example([b"", b"TAGS\x01a\x02", b""])
@example([b"TAGS\x01\x02", b"A\x01b\x01c\x02\x02"])
@example([b"".join(b"%d\x01v\x02" % number for number in range(40))])
def test_maps_and_values_are_those_of_single_messages(rows):
    columns = PropertyColumns(pa.array(rows, pa.binary()))
    expected = [decode_properties(row) for row in rows]

    maps = columns.maps()
    maps.validate(full=True)
    assert [dict(row) for row in maps.to_pylist()] == expected
    assert all(len(row) == len(dict(row)) for row in maps.to_pylist())
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "namenamenameBBBBname"):
        values = columns.values(name)
        values.validate(full=True)
        assert values.to_pylist() == [row.get(name) for row in expected]
