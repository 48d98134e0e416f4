"""Settings of rights on logs of raw entries, and their quotas: which users they name, and which values are refused."""

from __future__ import annotations

import pytest

from cluster.config.load import ConfigError, load_config
from dledger.security.identity import CertificateIdentity

GOOD = {"self_id": "n0", "peers": "n0-127.0.0.1:20911", "store_base_dir": "data"}
MUTUAL = {
    "client_tls": "mutual",
    "tls_certificate_file": "c",
    "tls_key_file": "k",
    "tls_authority_file": "a",
}
ALICE, BOB = "dledger://default/user/alice", "dledger://other/user/bob"


def test_users_of_a_log_are_named_by_their_certificates() -> None:
    named = {"log_administrators": f"{ALICE}, {BOB}", "log_writers": "none"}
    callers = load_config(None, {}, GOOD | MUTUAL | named).log_callers
    assert callers is not None
    alice, bob, carol, node = (
        CertificateIdentity.parse(uri)
        for uri in (ALICE, BOB, "dledger://default/user/carol", "dledger://default/node/n0")
    )

    assert [callers.administrators.has(each, "default") for each in (alice, bob, carol, node)] == [
        True,
        True,
        False,
        False,
    ]
    assert [callers.writers.has(each, "default") for each in (alice, bob, carol, node)] == [False] * 4
    assert [callers.readers.has(each, "default") for each in (alice, bob, carol, node)] == [True, False, True, False]
    assert load_config(None, {}, GOOD).log_callers is None


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (MUTUAL | {"log_readers": "alice"}, "log_readers.*expected dledger://<group>/node/<id>"),
        (MUTUAL | {"log_readers": "dledger://default/node/n0"}, "log_readers.*expected a user"),
        (MUTUAL | {"log_readers": f"{ALICE},{ALICE}"}, "log_readers.*expected each user once"),
        (MUTUAL | {"log_readers": ",".join(f"{ALICE}{n}" for n in range(1_001))}, "expected at most 1000 users"),
        ({"log_writers": ALICE}, "log_writers.*expected client_tls = mutual, .*found off"),
        (MUTUAL | {"broker": "b0", "log_administrators": "all"}, "log_administrators.*only on a log of raw entries"),
    ],
    ids=["no URI", "a node", "twice", "too many", "without certificates", "of a broker"],
)
def test_users_of_a_log_that_would_protect_nothing_are_refused(settings: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        load_config(None, {}, GOOD | settings)


def test_nodes_of_raw_entries_have_quotas() -> None:
    assert load_config(None, {}, GOOD | {"quota_user_requests_per_s": "7"}).quotas.quota_user_requests_per_s == 7
