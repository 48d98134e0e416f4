"""Properties as Arrow columns equal those of the reader of single messages, whatever the bytes."""

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.record.properties import decode_properties
from pipeline.columns.property_columns import PropertyColumns

NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "namenamenameAAAAname", "namenamenameBBBBname", "é"])
REGULAR = st.dictionaries(NAMES, st.text("abc é#", min_size=1, max_size=6), max_size=5).map(
    lambda row: "".join(f"{name}\x01{value}\x02" for name, value in row.items()).encode()
)
# Without the last 0x02, as some versions of RocketMQ write them.
CUT = REGULAR.map(lambda raw: raw[:-1])
ANY = st.lists(st.sampled_from([b"TAGS", b"KEYS", b"\x01", b"\x02", b"v", b"\xff"]), max_size=9).map(b"".join)


# Of one program: the same names in all messages, but for one that may be of another.
SAME = st.lists(
    st.tuples(*[st.text("abé#", min_size=1, max_size=6)] * 2).map(lambda two: "TAGS\x01{}\x02é\x01{}\x02".format(*two)),
    min_size=1,
    max_size=24,
).map(lambda rows: [row.encode() for row in rows])
ONE_OTHER = st.builds(
    lambda rows, other, at: [*rows[:at], other, *rows[at:]], SAME, REGULAR | CUT | ANY, st.integers(0)
)


def _among_others(*rows: bytes) -> list[bytes]:
    """Return rows among many of one program."""
    return [b"TAGS\x01a\x02"] * 10 + [*rows] + [b"TAGS\x01a\x02"] * (16 - len(rows))


@given(st.lists(REGULAR | CUT, max_size=8) | st.lists(REGULAR | ANY, max_size=8) | SAME | ONE_OTHER)
@example(_among_others(b"TAGX\x01a\x02"))
@example(_among_others(b"TAGS\x01a\x01b\x02"))
@example(_among_others(b"TAGS\x01\x02"))
@example(_among_others(b"TAGS\x01\xff\x02"))
@example(_among_others(b"TAGS\x01a", b"\x02TAGS\x01a\x02"))
@example(_among_others(b"TAGS\x01a\x02TAGX\x01b\x02", b""))
@example([b"", b""])
@example([b"TAGS\x01a\x02KEYS\x01b\x02", b"TAGS\x01c\x02KEYS\x01d\x02", b"TAGS\x01e\x02KEYS\x01f"])
@example([b"TAGS\x01a\x02TAGS\x01b\x02", b"TAGS\x01a\x02TAGS\x01b\x02"])
@example([b"TAGS\x01a\x02\x00", b"TA\x00GS\x01a\x02"])
@example([b"TAGS\x01a\x02TAGS\x01b\x02"])
@example([b"TAGS\x01a", b"\x02KEYS\x01b\x02"])
@example([b"", b"TAGS\x01a\x02", b""])
@example([b"TAGS\x01\x02", b"A\x01b\x01c\x02\x02"])
@example([b"".join(b"%d\x01v\x02" % number for number in range(40))])
@example([b"%d\x01v\x02KEYS\x01k\x02" % number for number in range(300)])
def test_columns_of_properties_equal_those_of_single_messages(rows):
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
