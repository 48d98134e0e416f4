"""The classic Java client, 4.9 and 5.3, over TLS with access keys, at a closed group of three brokers of ours."""

import os
from pathlib import Path

import pytest

from tests.interop.official.brokers_and_programs import observed, started
from tests.interop.official.closed_group import CASES, closed_group, unread_count
from tests.interop.official.test_official_remoting_client import VERSIONS
from tests.support.certificates import new_authority


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Return the closed group, shared by the tests of the module."""
    topics = {topic_of(version): "" for version in VERSIONS}
    with closed_group(tmp_path_factory.mktemp("closed") / "run", topics) as made:
        yield made


def topic_of(version):
    return f"T-{version.replace('.', '-')}"


@pytest.fixture(params=VERSIONS)
def version(request):
    """Return one version of the client; without it the test is skipped, with a reason."""
    if not os.environ.get("DLEDGER_INTEROP_REMOTING"):
        names = ("DLEDGER_INTEROP_REMOTING_MISSING", "DLEDGER_INTEROP_MISSING")
        missing = next((os.environ[name] for name in names if name in os.environ), "")
        pytest.skip(missing or "needs the jars of rocketmq-client: `make interop` gets them")
    return request.param


def verifying(authority):
    """Return the options of a JVM whose client uses TLS, and trusts an authority; by default it trusts all nodes."""
    trusting = ("-Dtls.client.authServer=true", f"-Dtls.client.trustCertPath={authority}")
    return ("-Dtls.enable=true", "-Dtls.test.mode.enable=false", *trusting)


def run(version, group, folder, options, cases):
    """Run cases with a client that knows all nodes; return what was observed in each."""
    client = Path(os.environ["DLEDGER_INTEROP_REMOTING"]) / version
    classes = ("-cp", os.pathsep.join((str(client / "classes"), f"{client / 'lib'}/*")), "ClientWithKeys")
    words = [f"{case},{','.join(CASES[case])},{'push' if pushes else ''}" for case, pushes in cases.items()]
    java = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Duser.home={folder}", *options, *classes)
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    return observed(started([*java, group.brokers.remoting_endpoints, topic_of(version), *words], environment))


def test_a_client_sends_pulls_and_consumes_with_its_key_and_each_refusal_is_an_error(version, group, tmp_path):
    cases = {case: case == "shop" for case in CASES}
    found = run(version, group, tmp_path, verifying(group.authority_file), cases)
    topic = topic_of(version)
    assert found["shop"] == {"send": "", "receive": "", "bodies": ["shop"], "push": ""}
    assert (found["writer"]["send"], found["reader"]["receive"]) == ("", "")
    assert found["reader"]["bodies"] == ["shop", "writer"]
    # The writer has sent after that.
    assert unread_count(group, f"P{topic}", topic) == 1, "the push consumer has committed its offset"
    for case, step, right in (("reader", "send", "Pub"), ("writer", "receive", "Sub")):
        text = found[case][step]
        assert ("CODE: 16" in text, f"lacks {right} on Topic:{topic}" in text) == (True, True), text
    for case in ("wrong", "unsigned"):
        # Clients hide why they have no route from a producer; consumers show it.
        assert "MQClientException: No route info of this topic" in found[case]["send"]
        assert "CODE: 16" in found[case]["receive"], found[case]
        assert found[case]["bodies"] == []


@pytest.mark.parametrize("mode", ["plain", "another authority"])
def test_a_client_without_tls_or_of_another_authority_gets_an_error(version, group, tmp_path, mode):
    other = tmp_path / "other.crt"
    other.write_bytes(new_authority().certificate_pem())
    options = () if mode == "plain" else verifying(other)
    found = run(version, group, tmp_path, options, {"shop": False})["shop"]
    for step in ("send", "receive"):
        assert "exception.Remoting" in found[step], found
    assert found["bodies"] == []
