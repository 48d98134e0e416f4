"""Planted bugs of clients and name servers over TLS: registrations by others, and tokens on plain connections."""

import dataclasses

from cluster.access.model import ALL_ACTIONS, Policy, resource_of
from cluster.access.rules import AccessRules, SubjectRules, UserRules
from cluster.api import name_server
from cluster.api.gates import entry_rights
from cluster.api.gates import registrant_rights as gate
from cluster.api.name_servers.links import GrpcNameServer
from cluster.config.log_callers import Users
from cluster.server import node
from dledger.security import channels
from tests.mutants.mutant import Mutant, Tests

NAMES = "tests/integration/cluster/nameserver/test_closed_name_server.py::"
RAW = "tests/integration/cluster/gates/test_raw_log_rights.py::"
CHANNELS = "tests/integration/dledger/security/test_channels.py::"
CLOSED = "untrusted peers are refused"

dial = GrpcNameServer.__init__


def any_node_registers_any_broker(patch):
    patch.setattr(gate, "registrant_fault", lambda identity, names, request, **_: "")


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
    patch.setattr(channels, "token_for", lambda address, security: security.token)


def every_user_administers_a_log(patch):
    actions = Policy(resource_of("Cluster:*"), ALL_ACTIONS)
    every = UserRules(SubjectRules((actions,)), is_super=True)
    patch.setattr(entry_rights, "_RULES", AccessRules(dict.fromkeys(("administrator", *entry_rights._ACTIONS), every)))


def all_users_are_those_of_every_group(patch):
    patch.setattr(Users, "has", lambda self, identity, group: self.has_all or identity in self.named)


def nodes_of_every_group_are_nodes_of_a_log(patch):
    policy_of = entry_rights.entry_policy

    def wide(group, callers):
        policy = policy_of(group, callers)

        def is_node(identity):
            return identity.kind == "node"

        def subject_of(identity):
            return "administrator" if is_node(identity) else policy.subject_of(identity)

        return dataclasses.replace(policy, is_node=is_node, subject_of=subject_of)

    patch.setattr(node, "entry_policy", wide)


MUTANTS = (
    Mutant(any_node_registers_any_broker, CLOSED, Tests(NAMES + "test_broker_registers_only_itself")),
    Mutant(a_leader_registers_any_address, CLOSED, Tests(NAMES + "test_broker_registers_only_itself")),
    Mutant(
        a_plain_caller_counts_as_one_with_a_certificate,
        CLOSED,
        Tests(NAMES + "test_plain_port_of_a_change_takes_over_no_registration_of_a_certificate"),
    ),
    Mutant(users_drain_brokers, CLOSED, Tests(NAMES + "test_each_rpc_is_for_the_certificates_of_its_row")),
    Mutant(every_user_administers_a_log, CLOSED, Tests(RAW + "test_each_rpc_is_for_the_certificates_of_its_row")),
    Mutant(
        all_users_are_those_of_every_group,
        CLOSED,
        Tests(RAW + "test_without_lists_users_of_the_group_use_the_log_and_only_nodes_administer"),
    ),
    Mutant(
        nodes_of_every_group_are_nodes_of_a_log,
        CLOSED,
        Tests(RAW + "test_each_rpc_is_for_the_certificates_of_its_row"),
    ),
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
