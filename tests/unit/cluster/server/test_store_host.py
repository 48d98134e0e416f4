"""The store host of records: an address unchanged, a name resolved once, within a time limit."""

import logging
import socket
import threading

import pytest

from cluster.config.load import load_config
from cluster.replica.standalone import StandaloneConfig
from cluster.server.node import replicated_config
from cluster.server.store_host import resolve_store_host
from dledger.config import Address
from store.model.message import Host
from tests.support.waiting import run

V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.2.3.4", 20921))
OTHER_V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.2.3.5", 20921))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::7", 20921, 0, 0))


def resolved(host, **limits):
    """Return the store host of a start with this address."""
    found = []

    async def scenario():
        found.append(await resolve_store_host(Address(host, 20921), **limits))

    run(scenario())
    return found[0]


@pytest.fixture
def names(monkeypatch):
    """Replace the resolver by a table of names, in all threads."""
    answers = {}

    def getaddrinfo(host, *_args, **_options):
        answer = answers[host]
        return answer() if callable(answer) else answer

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return answers


def test_an_address_is_used_unchanged(names):
    assert resolved("10.9.8.7") == Host(bytes((10, 9, 8, 7)), 20921)


def test_a_name_is_resolved_and_ipv4_is_preferred(names):
    names.update(both=[V6, V4, OTHER_V4], new=[V6])

    assert resolved("both") == Host(bytes((10, 2, 3, 4)), 20921)
    assert resolved("new") == Host(socket.inet_pton(socket.AF_INET6, "fd00::7"), 20921)


def test_an_unknown_name_is_logged_and_loopback_is_used(names, caplog):
    def unknown():
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    names["absent"] = unknown
    with caplog.at_level(logging.WARNING):
        assert resolved("absent") == Host(bytes((127, 0, 0, 1)), 20921)

    assert "store_host_unresolved host=absent" in caplog.text
    assert "Name or service not known" in caplog.text


def test_a_silent_resolver_delays_a_start_for_a_bounded_time(names, caplog):
    is_over = threading.Event()

    def stalled():
        assert is_over.wait(60)
        return [V4]

    names["slow"] = stalled
    found = []

    async def scenario():
        found.append(await resolve_store_host(Address("slow", 20921), limit_s=0.05))
        is_over.set()

    with caplog.at_level(logging.WARNING):
        run(scenario())

    assert found == [Host(bytes((127, 0, 0, 1)), 20921)]
    assert "no answer within 0.05 s" in caplog.text


def test_records_of_both_kinds_of_brokers_have_the_store_host():
    host = Host(bytes((10, 2, 3, 4)), 20921)
    flags = {
        "self_id": "n0",
        "peers": "n0-a:20911;n1-b:20911;n2-c:20911",
        "store_base_dir": "data",
        "broker": "broker-a",
        "client_address": "a:20921",
        "metrics_address": "a:20931",
        "insecure": "all",
    }
    config = load_config(None, {}, flags)

    assert replicated_config(config, config.broker, host).log.store_host == host
    assert StandaloneConfig("data", "b", "a:1").with_store_host(host).plain.log.store_host == host
