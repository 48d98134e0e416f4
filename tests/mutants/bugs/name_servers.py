"""Planted bugs of clients and name servers over TLS: registrations by others, and tokens on plain connections."""

from cluster.api import name_server
from cluster.api.gates import name_server_gate as gate
from cluster.api.gates.name_server_gate import NameServerCall
from cluster.api.name_servers.links import GrpcNameServer
from dledger.security import channels
from tests.mutants.mutant import Mutant, Tests

NAMES = "tests/integration/cluster/nameserver/test_closed_name_server.py::"
CHANNELS = "tests/integration/dledger/security/test_channels.py::"
CLOSED = "untrusted peers are refused"

dial = GrpcNameServer.__init__


def any_node_registers_any_broker(patch):
    patch.setattr(NameServerCall, "_check_registrant", lambda self, identity, request: None)


def a_leader_registers_any_address(patch):
    patch.setattr(gate, "_is_host", lambda name, host: True)


def a_plain_caller_counts_as_one_with_a_certificate(patch):
    patch.setattr(name_server, "names_of_certificate", lambda context: ("dledger://b0/node/n0",))


def users_drain_brokers(patch):
    patch.setattr(gate, "_READER", gate._ADMINISTRATOR)


def a_broker_keeps_the_connection_of_its_old_certificate(patch):
    def once(self, address, on_lost, *, security):
        first = security()
        dial(self, address, on_lost, security=lambda: first)

    patch.setattr(GrpcNameServer, "__init__", once)


def a_token_goes_over_every_connection(patch):
    patch.setattr(channels, "_token_for", lambda address, security: security.token)


MUTANTS = (
    Mutant(any_node_registers_any_broker, CLOSED, Tests(NAMES + "test_broker_registers_only_itself")),
    Mutant(a_leader_registers_any_address, CLOSED, Tests(NAMES + "test_broker_registers_only_itself")),
    Mutant(
        a_plain_caller_counts_as_one_with_a_certificate,
        CLOSED,
        Tests(NAMES + "test_plain_port_of_a_change_takes_over_no_registration_of_a_certificate"),
    ),
    Mutant(users_drain_brokers, CLOSED, Tests(NAMES + "test_each_rpc_is_for_the_certificates_of_its_row")),
    Mutant(
        a_broker_keeps_the_connection_of_its_old_certificate,
        "a renewal interrupts nothing",
        Tests(NAMES + "test_broker_dials_again_when_its_certificate_has_changed"),
    ),
    Mutant(
        a_token_goes_over_every_connection,
        "no secret in plain text",
        Tests(CHANNELS + "test_token_is_sent_with_each_call_but_not_in_the_clear_to_another_machine"),
    ),
)
