"""The port for official clients of RocketMQ is off by default, opens beside users, and not beside TLS."""

from __future__ import annotations

import pytest

from cluster.config.load import ConfigError, load_config
from cluster.config.values import parse_address

GOOD = {"self_id": "n0", "peers": "n0-127.0.0.1:1001", "store_base_dir": "data"}
PORT = {"broker": "b", "rocketmq_grpc_address": "127.0.0.1:8081"}
FILES = {"tls_certificate_file": "c", "tls_key_file": "k"}


def test_the_port_is_off_by_default() -> None:
    assert load_config(None, {}, GOOD | {"broker": "b"}).rocketmq_grpc_address is None
    with_users = PORT | {"first_user_file": "u"}
    assert load_config(None, {}, GOOD | with_users).rocketmq_grpc_address == parse_address("127.0.0.1:8081")
    assert load_config(None, {}, GOOD | PORT).rocketmq_grpc_address == parse_address("127.0.0.1:8081")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (PORT | FILES | {"client_tls": "on"}, "expected off with client_tls = 'on': this port has no TLS yet"),
        (PORT | {"broker": ""}, "expected only on a broker's node"),
        (PORT | {"rocketmq_grpc_address": "n0:8081"}, "other machines can reach n0:8081"),
        (PORT | {"rocketmq_grpc_address": "127.0.0.1:20921"}, "is used by client_address"),
    ],
)
def test_the_port_is_refused_where_it_would_be_open_to_unknown_clients(settings: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, GOOD | settings)
    assert fault in str(refused.value)
    assert {each.name for each in refused.value.faults} == {"rocketmq_grpc_address"}


REMOTING = {"broker": "b", "rocketmq_remoting_address": "127.0.0.1:10911"}


def test_the_port_of_the_remoting_protocol_is_off_by_default_and_opens_beside_users() -> None:
    assert load_config(None, {}, GOOD | {"broker": "b"}).rocketmq_remoting_address is None
    with_users = load_config(None, {}, GOOD | REMOTING | {"first_user_file": "u"})
    assert with_users.rocketmq_remoting_address == parse_address("127.0.0.1:10911")
    loaded = load_config(None, {}, GOOD | REMOTING)
    assert loaded.rocketmq_remoting_address == parse_address("127.0.0.1:10911")
    assert loaded.rocketmq_remoting_peers == {"n0": "127.0.0.1:10911"}


def test_other_nodes_are_at_their_hosts_and_the_same_port_or_where_the_settings_say() -> None:
    peers = {"peers": "n0-127.0.0.1:1001;n1-127.0.0.2:1001"}
    assert load_config(None, {}, GOOD | REMOTING | peers).rocketmq_remoting_peers["n1"] == "127.0.0.2:10911"
    said = {"rocketmq_remoting_peers": "n0-h0:1;n1-h1:2"}
    assert load_config(None, {}, GOOD | REMOTING | peers | said).rocketmq_remoting_peers == {"n0": "h0:1", "n1": "h1:2"}


@pytest.mark.parametrize(
    ("settings", "name", "fault"),
    [
        (FILES | {"client_tls": "on"}, "rocketmq_remoting_address", "expected off with client_tls = 'on'"),
        ({"rocketmq_remoting_address": "n0:8081"}, "rocketmq_remoting_address", "other machines can reach n0:8081"),
        ({"rocketmq_remoting_peers": "n1-h:1"}, "rocketmq_remoting_peers", "expected each node once, with n0"),
    ],
)
def test_the_port_of_the_remoting_protocol_has_the_same_bounds(settings: dict[str, str], name: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, GOOD | REMOTING | settings)
    assert fault in str(refused.value)
    assert {each.name for each in refused.value.faults} == {name}
