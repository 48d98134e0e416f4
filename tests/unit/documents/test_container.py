"""The image of the Dockerfile, as far as it can be checked without a build: what it copies, its user, its health."""

from __future__ import annotations

import inspect
import json
import re
import runpy
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from cluster.cli.nodes.broker import broker
from cluster.cli.nodes.nameserver import nameserver
from cluster.config.broker_options import ServerOptions
from cluster.config.load import load_config
from dledger.security.credentials import Credentials
from tests.support.certificates import new_authority, node_pair, tls_of, write_tls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dledger.security.settings import Tls

ROOT = Path(__file__).parents[3]
REQUIREMENTS = ("requirements/build.txt", "requirements/runtime.txt")
PAGE = (ROOT / "docs/how-to/container.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HEALTH = runpy.run_path(str(ROOT / "scripts/container_health.py"))


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage of the Dockerfile, with what follows their names."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line.strip() for line in text.replace("\\\n", "").splitlines() if line.strip()]
    found: list[list[tuple[str, str]]] = []
    for line in lines:
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest.strip()))
    return found


def values(stage: list[tuple[str, str]], name: str) -> list[str]:
    return [rest for each, rest in stage if each == name]


def copied() -> set[str]:
    """Return the files that the image takes from the repository."""
    copies = [rest.split() for stage in stages() for rest in values(stage, "COPY")]
    return {source for words in copies if not words[0].startswith("--from") for source in words[:-1]}


def test_build_copies_all_that_the_wheel_consists_of_and_the_context_has_nothing_else() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    packages, hook = wheel["packages"], wheel["hooks"]["custom"]["path"]
    project = PROJECT["project"]
    needed = {*packages, project["readme"], *project["license-files"], "pyproject.toml", hook, *REQUIREMENTS}
    context = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()

    assert needed | {"scripts/container_health.py"} == copied()
    assert copied() == {line[1:] for line in context if line.startswith("!")}
    assert all((ROOT / each).exists() for each in copied())


def test_both_stages_have_the_same_python_which_the_project_supports() -> None:
    (first,), (second,) = (values(stage, "FROM") for stage in stages())
    version = re.fullmatch(r"python:(3\.\d+)-slim", second)

    assert f"{second} AS build" == first
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["project"]["classifiers"]


def test_process_is_not_root_and_owns_its_volume() -> None:
    last = stages()[-1]
    (user,), (volume,), (folder,) = (values(last, name) for name in ("USER", "VOLUME", "WORKDIR"))
    number = user.partition(":")[0]

    assert f"{number}:{number}" == user
    assert int(number) >= 1000
    assert volume == folder == "/data"
    assert f"install --directory --owner {number} --group {number} --mode 0750 {volume}" in " ".join(
        values(last, "RUN")
    )
    assert number in PAGE


def test_exposed_ports_are_the_defaults() -> None:
    options = ServerOptions.model_fields
    # Ports that are off by default, or have no default, have one by convention: that of the example.
    ports = {}
    for name, option in options.items():
        if name == "peers" or name.endswith("_address"):
            (example,) = option.examples or [option.default]
            ports[name] = port_in(str(example))
    listened = [inspect.signature(each).parameters["listen"].default for each in (broker, nameserver)]

    assert {
        "peers",
        "client_address",
        "frame_address",
        "metrics_address",
        "rocketmq_grpc_address",
        "rocketmq_remoting_address",
    } == set(ports)
    assert {*ports.values(), *map(port_in, listened)} == {
        int(port) for port in values(stages()[-1], "EXPOSE")[0].split()
    }


def port_in(addresses: str) -> int:
    """Return the port of the first address of a text."""
    return int(re.findall(r":(\d+)", addresses)[0])


def test_health_check_runs_the_copied_program_within_its_time_limit() -> None:
    last = stages()[-1]
    (check,) = values(last, "HEALTHCHECK")
    (limit,) = re.findall(r"--timeout=(\d+)s", check)
    _, _, command = check.partition(" CMD ")

    assert json.loads(command) == ["python", "/opt/dledger/container_health.py"]
    assert "scripts/container_health.py /opt/dledger/container_health.py" in values(last, "COPY")
    assert float(limit) > HEALTH["_TIMEOUT_S"]


def test_nodes_of_the_page_have_settings_that_fit() -> None:
    (compose,) = (
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        if "services:" in block
    )
    nodes = {name: load_config(None, each["environment"], {}) for name, each in compose["services"].items()}

    assert len({each.node.peers for each in nodes.values()}) == 1
    for name, config in nodes.items():
        assert name == config.node.self_id
        assert len(config.exposed_ports) == 3
        assert {config.node.self_address.host, config.node.client_address.host, config.metrics_address.host} == {name}
        assert config.node.store_base_dir == "/data"
        assert compose["services"][name]["volumes"] == [f"{name}:/data"]
        assert compose["services"][name]["read_only"]
        assert compose["services"][name]["cap_drop"] == ["ALL"]
        assert compose["services"][name]["security_opt"] == ["no-new-privileges:true"]


# ------------------------------------------------------------------------------------------------------ health check


@pytest.fixture
def server() -> Iterator[tuple[health.HealthServicer, str]]:
    with ThreadPoolExecutor(2) as pool:
        served = grpc.server(pool)
        servicer = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, served)
        port = served.add_insecure_port("127.0.0.1:0")
        served.start()
        yield servicer, f"127.0.0.1:{port}"
        served.stop(None).wait()


def check(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr("sys.argv", ["container_health.py", *arguments])
    return HEALTH["main"]()


def test_container_is_healthy_while_its_process_serves(
    server: tuple[health.HealthServicer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    servicer, address = server
    monkeypatch.setenv("DLEDGER_CLIENT_ADDRESS", address)
    # A container may have a proxy for other addresses.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    assert [0, 0] == [check(monkeypatch), check(monkeypatch, address)]

    servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    assert check(monkeypatch) == 1


def test_container_whose_process_does_not_answer_is_unhealthy_with_the_reason(
    server: tuple[health.HealthServicer, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    servicer, address = server
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    monkeypatch.setenv("DLEDGER_CLIENT_ADDRESS", address)

    assert check(monkeypatch, "nowhere.invalid:1") == 1
    assert capsys.readouterr().out.startswith("nowhere.invalid:1: UNAVAILABLE: ")


@pytest.mark.parametrize("is_mutual", [False, True])
def test_container_with_tls_is_healthy_and_another_process_on_its_address_is_not(
    is_mutual: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = new_authority()
    files = write_tls(tmp_path, tls_of(node_pair(ours, "n0", hosts=["n0.example.net", "10.0.0.1"]), ours))
    monkeypatch.setenv("DLEDGER_CLIENT_TLS", "mutual" if is_mutual else "on")
    monkeypatch.setenv("DLEDGER_TLS_CERTIFICATE_FILE", files.certificate)
    monkeypatch.setenv("DLEDGER_TLS_KEY_FILE", files.key)
    with served(Credentials(files).current_tls(), ours.certificate_pem() if is_mutual else None) as address:
        assert check(monkeypatch, address) == 0

        write_tls(tmp_path, tls_of(node_pair(ours, "n1"), ours))
        assert check(monkeypatch, address) == 1
    (tmp_path / "node.key").unlink()
    assert check(monkeypatch, address) == 1
    assert "expected a private key, found no file" in capsys.readouterr().out


@contextmanager
def served(tls: Tls, clients_authority: bytes | None) -> Iterator[str]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
        pair = [(tls.key, tls.certificate)]
        credentials = grpc.ssl_server_credentials(pair, clients_authority, clients_authority is not None)
        port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()
