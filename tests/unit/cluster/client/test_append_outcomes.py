"""`NotAppended` and `AppendUnknown` are one pair of classes for both clients, wherever they are imported from."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cluster
import cluster.client.outcomes
import dledger
import dledger.client.outcomes
from cluster.client.outcomes import not_appended, outcome_of_failure
from cluster.protocol.errors import Reason, RequestFailed
from dledger.client.limits import check_bodies
from store.errors import Certainty


@pytest.mark.parametrize("package", [dledger, dledger.client.outcomes, cluster, cluster.client.outcomes])
def test_an_except_with_either_import_catches_the_outcomes_of_both_clients(package) -> None:
    with pytest.raises(package.NotAppended):
        check_bodies([])
    with pytest.raises(package.NotAppended):
        raise not_appended(Reason.CLIENT_CLOSED, "the client is closed")
    with pytest.raises(package.AppendUnknown):
        raise outcome_of_failure(RequestFailed(Reason.ANSWER_LOST, "why"), ("key",), is_open=False)


def test_outcome_of_a_message_has_the_cause_of_the_failed_request() -> None:
    lost = outcome_of_failure(RequestFailed(Reason.ANSWER_LOST, "why"), ("key",), is_open=False)
    refused = not_appended(Reason.DISK_FULL, "no space")

    assert isinstance(lost, cluster.MessageAppendUnknown)
    assert (str(lost), lost.reason, lost.unique_keys) == ("ANSWER_LOST: why", Reason.ANSWER_LOST, ("key",))
    assert isinstance(refused, cluster.MessageNotAppended)
    assert isinstance(refused, RequestFailed)
    assert not isinstance(refused, cluster.AppendUnknown)
    assert (str(refused), refused.certainty, refused.message) == (
        "DISK_FULL: no space",
        Certainty.NOT_APPENDED,
        "no space",
    )


def test_clients_of_messages_come_from_the_package_of_the_log() -> None:
    from dledger import Consumer, LogClient, Producer

    assert (Consumer, Producer) == (cluster.Consumer, cluster.Producer)
    assert LogClient.__module__.startswith("dledger.")


def test_clients_of_messages_without_their_package_say_what_to_install() -> None:
    program = "import sys; sys.modules['cluster'] = None\nfrom dledger import Producer"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert "ImportError: dledger.Producer is the client of messages, and its package `cluster` is not" in ended.stderr


def test_names_of_the_first_release_still_import() -> None:
    from dledger.errors import Outcome

    assert cluster.Appended is cluster.MessageAppended
    assert Outcome is Certainty
