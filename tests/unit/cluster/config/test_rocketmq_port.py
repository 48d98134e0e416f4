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
