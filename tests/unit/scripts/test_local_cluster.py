"""What `make cluster-up` prints for a shell: where each kind of client finds the brokers."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from cluster.local.brokers import LocalBrokers
from scripts import local_cluster

if TYPE_CHECKING:
    from pathlib import Path


def test_a_broker_has_an_address_for_official_clients_of_rocketmq(tmp_path: Path) -> None:
    brokers = LocalBrokers.create(tmp_path / "one", has_rocketmq=True)
    (cluster,) = brokers.clusters.values()
    exports = dict(line.removeprefix("export ").split("=") for line in local_cluster._exports(brokers).splitlines())

    assert exports["DLEDGER_ROCKETMQ_GRPC"] == cluster.rocketmq_endpoint_of("n0")
    settings = [tomllib.loads(cluster.config_of(name).read_text()) for name in cluster.node_ids]
    assert [each["rocketmq_grpc_address"] for each in settings] == cluster.rocketmq_endpoints.split(";")
    endpoints = exports["DLEDGER_ROCKETMQ_NAMESRV"].strip("'")
    assert [each["rocketmq_remoting_address"] for each in settings] == endpoints.split(";")
    places = ";".join(f"n{at}-{each}" for at, each in enumerate(endpoints.split(";")))
    assert {each["rocketmq_remoting_peers"] for each in settings} == {places}
    assert LocalBrokers.attach(tmp_path / "one").rocketmq_endpoints == brokers.rocketmq_endpoints


def test_without_the_port_there_is_no_such_address(tmp_path: Path) -> None:
    brokers = LocalBrokers.create(tmp_path / "none")

    assert "DLEDGER_ROCKETMQ_GRPC" not in local_cluster._exports(brokers)


def test_a_secured_broker_has_them_too(tmp_path: Path) -> None:
    brokers = LocalBrokers.create(tmp_path / "secured", nodes=1, name_servers=0, is_secured=True, has_rocketmq=True)
    exports = dict(line.removeprefix("export ").split("=") for line in local_cluster._exports(brokers).splitlines())

    assert exports.keys() == {"DLEDGER_CONFIG", "DLEDGER_ROCKETMQ_GRPC", "DLEDGER_ROCKETMQ_NAMESRV"}
    assert exports["DLEDGER_ROCKETMQ_NAMESRV"] == brokers.remoting_endpoints
    (cluster,) = brokers.clusters.values()
    settings = tomllib.loads(cluster.config_of("n0").read_text())
    assert (settings["client_tls"], settings["rocketmq_grpc_address"]) == ("mutual", cluster.rocketmq_endpoints)
