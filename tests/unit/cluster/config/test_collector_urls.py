"""The URL of a collector: what is accepted, and that no refusal repeats a password."""

import pytest

from cluster.config.values import parse_collector


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:4318", "https://collector.example/otlp", "http://[::1]:4318/"])
def test_urls_of_collectors_are_kept(url):
    assert parse_collector(f" {url} ") == url


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:4318",
        "ftp://h:1",
        "http://",
        "http://h:99999",
        "http://h:x",
        "http://h/?token=secret",
        "http://h/#secret",
    ],
)
def test_other_texts_are_refused(url):
    with pytest.raises(ValueError, match="expected http"):
        parse_collector(url)


def test_refusal_of_a_url_with_a_password_does_not_repeat_it():
    with pytest.raises(ValueError, match="expected http") as refused:
        parse_collector("http://user:secret@h:4318")
    assert "secret" not in str(refused.value)
