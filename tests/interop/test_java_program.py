"""The Java program reads its own stores as the manifest says, so its results for our stores are meaningful."""

import pytest

from tests.interop.puts import IPV4_STORE, IPV6_STORE, lines_of, puts_of_every_kind

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("store_host", [IPV4_STORE, IPV6_STORE], ids=["ipv4", "ipv6"])
def test_java_reads_what_java_wrote(java, tmp_path, store_host):
    puts = puts_of_every_kind(seed=1, count=300)

    places = java.write(tmp_path / "store", puts, store_host=store_host)

    contents = java.read(tmp_path / "store")
    assert contents.summary["problems"] == []
    assert contents.lines == lines_of(puts, places, store_host)


def test_java_reads_what_it_wrote_with_dledger(java, tmp_path):
    puts = puts_of_every_kind(seed=2, count=100)

    places = java.write(tmp_path / "store", puts, node_id="n0")

    contents = java.read(tmp_path / "store", node_id="n0")
    assert contents.summary["problems"] == []
    # The answer to a put has another time than the stored one.
    stored = [line["storeTimestamp"] for line in contents.lines]
    places = [place._replace(store_timestamp=time) for place, time in zip(places, stored, strict=True)]
    assert contents.lines == lines_of(puts, places)
