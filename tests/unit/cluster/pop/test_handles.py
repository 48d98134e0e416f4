"""Handles as text: those of one lease, and RocketMQ's with more fields."""

import pytest

from cluster.pop.handles import Handle, decode_handle, decode_handles, encode_handle, encode_handles
from store.errors import IllegalRequest

LEASE = Handle(5, 1_700_000_000_123, 30_000, 3, False, "broker-a", 2, 5)


@pytest.mark.parametrize("is_retry", [False, True])
def test_handles_of_leases_are_decoded_as_each_of_them_alone(is_retry):
    lease = LEASE._replace(is_retry=is_retry)
    other = lease._replace(serial=lease.serial + 1, broker="b")
    texts = encode_handles(lease, range(5, 9)) + encode_handles(other, [0, 10**18]) + encode_handles(lease, [7, 7])
    assert texts[0] == encode_handle(lease)
    assert decode_handles(texts) == [decode_handle(text) for text in texts]
    assert [each.offset for each in decode_handles(texts)] == [5, 6, 7, 8, 0, 10**18, 7, 7]
    assert {each.is_retry for each in decode_handles(texts)} == {is_retry}


def test_fields_after_the_offset_are_not_taken_for_it():
    text = encode_handle(LEASE)
    for texts in ([f"{text} 77", f"{text} 78"], [text, f"{text} 77 id", f"{text} 77 other"]):
        assert {each.offset for each in decode_handles(texts)} == {5}


@pytest.mark.parametrize("last", ["", "x", "-1", "1.5", "\u0661", "9" * 19, "1" * 400, "5 6 7 8"])
def test_text_that_is_no_handle_is_refused_also_after_one_of_the_same_lease(last):
    head = encode_handle(LEASE).rpartition(" ")[0]
    with pytest.raises(IllegalRequest, match="handle"):
        decode_handles([encode_handle(LEASE), f"{head} {last}"])
