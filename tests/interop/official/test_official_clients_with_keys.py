"""Official clients of RocketMQ 5, unchanged, over TLS with access keys, at a closed group of three brokers of ours."""

import os
import shutil
from pathlib import Path

import pytest

from tests.interop.official.brokers_and_programs import observed, started
from tests.interop.official.closed_group import CASES, SHOP, closed_group, unread_count
from tests.interop.official.test_official_java_client import OLDEST, check_kinds
from tests.support.certificates import new_authority

HERE = Path(__file__).parent
# The variables by which `make interop` names the clients.
NEEDED = {
    "python": "DLEDGER_INTEROP_ROCKETMQ_PYTHON",
    "node": "DLEDGER_INTEROP_ROCKETMQ_NODE",
    "go": "DLEDGER_INTEROP_ROCKETMQ_GO",
    **dict.fromkeys((f"java-{OLDEST}", "java-5.0.5", "java-5.2.0"), "DLEDGER_INTEROP_ROCKETMQ_JAVA"),
}
VERIFYING = ("python", "node")
KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
# What the texts of both refusals have in each client.
FORBIDDEN = {"python": "ForbiddenException: 40300", "node": "ForbiddenException", "go": "FORBIDDEN"}
UNAUTHORIZED = {"python": "failed to fetch topic", "node": "UnauthorizedException", "go": "UNAUTHORIZED"}


def topic_of(client):
    return f"T-{client.replace('.', '-')}"


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Return the closed group, shared by the tests of the module."""
    topics = {topic_of(client): "" for client in NEEDED} | {kind: kind for kind in KINDS}
    with closed_group(tmp_path_factory.mktemp("closed") / "run", topics) as made:
        yield made


@pytest.fixture
def clients(request, tmp_path):
    """Return a function that starts a client; without what the client needs the test is skipped, with a reason."""
    client = request.getfixturevalue("client")
    name = NEEDED[client]
    if not os.environ.get(name):
        pytest.skip(os.environ.get(f"{name}_MISSING") or f"{client} is missing: `make interop` gets it")
    program = os.environ[name]

    def start(endpoint, authority, *arguments):
        environment = {"HOME": str(tmp_path), "user.home": str(tmp_path), "PATH": os.environ["PATH"]}
        environment |= {"NODE_PATH": program, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority)}
        return started([*command_of(client, program, tmp_path), endpoint, *arguments], environment)

    return start


def command_of(client, program, folder):
    """Return the words that start the program of a client, without its arguments."""
    if client == "python":
        return [program, str(HERE / "python_client_with_keys.py")]
    if client == "node":
        return [shutil.which("node"), str(HERE / "node_client_with_keys.js")]
    if client == "go":
        return [program]
    classes = ("-cp", f"{program}/rocketmq-client-{client}.jar", str(HERE / "java_client_with_keys.java"))
    return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Duser.home={folder}", *classes]


def run(clients, client, group, authority, cases):
    """Run cases with a client at one node; return what was observed in each."""
    words = [f"{case},{','.join(CASES[case])},{'push' if pushes else ''}" for case, pushes in cases.items()]
    scenario = ("keys",) if client == "go" else ()
    endpoint = group.cluster.rocketmq_endpoint_of("n0")
    found = observed(clients(endpoint, authority, *scenario, topic_of(client), *words))
    assert found.keys() == cases.keys()
    return found


@pytest.mark.parametrize("client", NEEDED)
def test_a_client_sends_receives_and_acknowledges_with_its_key_and_each_refusal_is_an_error(
    client, clients, group, tmp_path
):
    # In 5.0.0, `build` of a push consumer does not return if that is refused.
    pushes = {case: case != "writer" or client != f"java-{OLDEST}" for case in CASES}
    found = run(clients, client, group, group.authority_file, pushes)
    forbidden, unauthorized = FORBIDDEN.get(client, "code=40300"), UNAUTHORIZED.get(client, "code=40100")
    for case in ("shop", "writer"):
        assert (case, found[case]["send"]) == (case, "")
    assert (found["shop"]["receive"], found["shop"]["bodies"]) == ("", ["shop"])
    assert (found["reader"]["receive"], found["reader"]["bodies"]) == ("", ["writer"])
    assert unread_count(group, f"G{topic_of(client)}", topic_of(client)) == 0, "all are acknowledged"
    refused = {("reader", "send"): "Pub", ("writer", "receive"): "Sub"}
    for (case, step), right in refused.items():
        text = found[case][step]
        assert (forbidden in text, f"lacks {right} on Topic:{topic_of(client)}" in text) == (True, True), text
    for case in ("wrong", "unsigned"):
        for step in ("send", "receive", "push"):
            text = found[case][step]
            # Push consumers of two clients fail once more, when they end what has not started.
            hides = step == "push" and client in ("python", f"java-{OLDEST}")
            assert text if hides else unauthorized in text, (case, step, text)
        assert found[case]["bodies"] == []
    assert (found["shop"]["push"], found["reader"]["push"]) == ("", "")
    if pushes["writer"]:
        assert found["writer"]["push"]
    if client in ("node", "go"):
        assert "lacks Sub on Topic" in found["writer"]["push"]
    if client == "python":
        # Its errors leave out why; its log has it.
        log = "".join(path.read_text() for path in tmp_path.glob("logs/rocketmq_python/*.log"))
        assert "40100" in log


@pytest.mark.parametrize("client", VERIFYING)
def test_a_client_that_verifies_the_node_refuses_one_of_another_authority(client, clients, group, tmp_path):
    other = tmp_path / "other.crt"
    other.write_bytes(new_authority().certificate_pem())
    found = run(clients, client, group, other, {"shop": False})["shop"]
    assert found["send"]
    assert found["receive"]
    assert found["bodies"] == []


@pytest.mark.parametrize("client", [f"java-{OLDEST}"])
def test_the_oldest_java_client_which_always_uses_tls_passes_all_kinds_at_the_port_itself(client, group, tmp_path):
    folder = os.environ.get(NEEDED[client])
    if not folder:
        pytest.skip(os.environ.get(f"{NEEDED[client]}_MISSING") or f"{client} is missing: `make interop` gets it")
    endpoint = group.cluster.rocketmq_endpoint_of("n0")
    java, mode = command_of(client, folder, tmp_path)[:-1], ("kinds-topic-by-topic", "tls")
    command = [*java, str(HERE / "official_java_client.java"), endpoint, *mode, SHOP.key, SHOP.secret]
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    check_kinds(observed(started(command, environment)), can_recall=False)
