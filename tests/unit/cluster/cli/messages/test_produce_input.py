"""The input of `dledger produce`: messages, and errors for invalid input."""

import io
import json

import pytest

from cluster.cli.messages.produce_input import (
    BATCH_SIZE_MAX,
    BODY_SIZE_MAX,
    Defaults,
    Input,
    Outgoing,
    batches_of,
    messages_of,
    parse_headers,
)


def read(content, kind=Input.LINES, **defaults):
    return list(messages_of(io.BytesIO(content), "in", kind, Defaults(**defaults)))


def test_a_line_is_a_message_without_its_newline():
    assert [(each.body, each.read_bytes) for each in read(b"one\r\ntwo\n\nthree")] == [
        (b"one", 5),
        (b"two", 4),
        (b"", 1),
        (b"three", 5),
    ]


def test_words_before_the_separator_are_the_keys():
    (message,) = read(b"o-17 o-18::a::b\n", key_separator="::", is_by_key=True, tag="paid")
    assert message == Outgoing(b"a::b", {"KEYS": "o-17 o-18", "TAGS": "paid"}, "o-17 o-18", None, 16)
    with pytest.raises(ValueError, match=r"in, line 2: expected KEYS:BODY, found no ':'"):
        read(b"k:v\nv\n", key_separator=":")


def test_a_json_line_has_tag_keys_properties_and_queue():
    row = {"body": "é", "tag": "t", "keys": ["a", "b"], "properties": {"trace": "1"}, "queueKey": "q", "queueId": 3}
    content = json.dumps(row).encode() + b"\n\n" + b'{"bodyBase64": "AP8="}\n'
    first, second = read(content, Input.JSONL, headers={"source": "x", "trace": "0"}, keys="d")
    assert first.body == "é".encode()
    assert first.properties == {"source": "x", "trace": "1", "KEYS": "a b", "TAGS": "t"}
    assert (first.queue_key, first.queue_id) == ("q", 3)
    assert (second.body, second.properties["KEYS"], second.queue_key) == (b"\x00\xff", "d", None)


def test_an_exported_message_is_sent_as_a_new_one():
    printed = {
        "topic": "old", "queueId": 7, "queueOffset": 4, "physicalOffset": 9, "size": 9, "tag": "t", "keys": None,
        "uniqKey": "U1", "msgId": "0A", "body": "x", "properties": {"TAGS": "t", "UNIQ_KEY": "U1", "trace": "1"},
    }  # fmt: skip
    (message,) = read(json.dumps(printed).encode(), Input.JSONL)
    assert message.properties == {"trace": "1", "TAGS": "t"}
    assert message.queue_id is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "expected a JSON object"),
        (b"[]", "found \\['list'\\]"),
        (b'{"bodi": "x"}', "bodi"),
        (b"{}", "expected one of body and bodyBase64"),
        (b'{"body": "x", "bodyBase64": "eA=="}', "expected one of body and bodyBase64"),
        (b'{"body": 3}', "expected a text in body"),
        (b'{"bodyBase64": "%"}', "Base64"),
        (b'{"body": "x", "keys": 3}', "expected texts"),
        (b'{"body": "x", "properties": {"a": 1}}', "expected texts"),
        (b'{"body": "x", "queueId": -1}', "queueId of at least 0"),
        (b'{"body": "x", "queueId": true}', "queueId of at least 0"),
        (b"\xff", "expected a JSON object"),
    ],
)
def test_a_line_without_a_message_is_reported(line, said):
    with pytest.raises(ValueError, match=f"in, line 2: .*{said}"):
        read(b'{"body": "first"}\n' + line + b"\n", Input.JSONL)


def test_a_message_that_is_too_large_is_refused_before_all_of_it_is_read():
    for kind in Input:
        stream = io.BytesIO(b"x" * (64 << 20))
        with pytest.raises(ValueError, match=r"in.* expected "):
            list(messages_of(stream, "in", kind, Defaults()))
        assert stream.tell() <= 8 * BODY_SIZE_MAX + 2


def test_headers_are_names_with_values():
    assert parse_headers(["a=1", "b=c=d", "e="]) == {"a": "1", "b": "c=d", "e": ""}
    for bad in ("a", "=1", "TAGS=x", "UNIQ_KEY=y"):
        with pytest.raises(ValueError, match="--header"):
            parse_headers([bad])


def test_batches_are_bounded_in_messages_and_bytes_and_keep_what_came_before_a_fault():
    def messages():
        for _ in range(7):
            yield Outgoing(bytes(BATCH_SIZE_MAX // 3))
        raise ValueError("bad")

    batches = batches_of(messages())
    assert [len(next(batches)) for _ in range(3)] == [3, 3, 1]
    with pytest.raises(ValueError, match="bad"):
        next(batches)
    assert [len(batch) for batch in batches_of([Outgoing(b"")] * 250)] == [100, 100, 50]


def test_deeply_nested_json_line_is_refused_with_its_position():
    with pytest.raises(ValueError, match=r"in, line 1: expected a JSON object, found b'\[\[.*fewer levels"):
        read(b"[" * 100_000 + b"\n", Input.JSONL)
