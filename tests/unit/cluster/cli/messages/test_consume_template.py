"""Templates of `dledger consume`."""

import pytest

from cluster.cli.messages.template import template_printer
from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import decode
from store.model.message import Host, Message


@pytest.fixture
def record():
    properties = {"KEYS": "a b", "TAGS": "paid", "UNIQ_KEY": "U1", "trace": "t-1", "zone": "eu"}
    message = Message("orders", b"body {offset}", 3, properties, born_timestamp=1)
    encoder = RecordEncoder(Host(b"\x0a\0\0\1", 10911))
    (encoded,) = encoder.prepare([message]).encode_each([17], 1_700_000_000_123)
    return decode(memoryview(encoded), 0)


def test_fields_are_replaced_and_nothing_else(record, capfdbinary):
    template_printer(
        r"{topic}/{queue}/{offset} {tag} {keys} {header:trace}{header:none}|{headers}\t{uniqkey} {size} é"
    )(record)
    template_printer(r"{time}\n{body} { offset} \\n")(record)
    template_printer("")(record)
    found = capfdbinary.readouterr().out.decode()
    assert found == (
        "orders/3/17 paid a b t-1|trace=t-1,zone=eu\tU1 13 é\n2023-11-14T22:13:20.123Z\nbody {offset} { offset} \\n\n\n"
    )


@pytest.mark.parametrize("bad", ["{offsets}", "{body:x}", "{header:}"])
def test_an_unknown_field_is_refused_with_those_that_are_known(bad):
    with pytest.raises(ValueError, match=r"--template: expected fields out of \{topic\}"):
        template_printer(bad)
