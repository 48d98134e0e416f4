"""Planted bugs of both fronts for RocketMQ's clients: bounds that a stranger would find missing."""

from cluster.grpc_v2 import delivered, outgoing, telemetry
from cluster.remoting import clients
from cluster.remoting.admin import configs
from cluster.remoting.consumers import bodies
from cluster.remoting.producers import batches
from tests.mutants.mutant import Mutant, Tests

REMOTING = "tests/unit/cluster/remoting/"
GRPC = "tests/unit/cluster/grpc_v2/test_front_bounds.py::"
_UNBOUNDED = 1 << 40


def batch_may_have_any_number_of_messages(patch):
    patch.setattr(batches, "MESSAGES_MAX", _UNBOUNDED)


def heartbeat_may_have_any_number_of_values(patch):
    patch.setattr(bodies, "VALUES_MAX", _UNBOUNDED)


def clients_are_unregistered_by_anyone(patch):
    unregister = clients.ClientTable.unregister

    def by_anyone(self, client_id, connection, **groups):
        return unregister(self, client_id, self.client(client_id) or connection, **groups)

    patch.setattr(clients.ClientTable, "unregister", by_anyone)


def one_group_may_fill_the_table(patch):
    patch.setattr(clients, "_check_group", lambda *_args, **_named: None)


def settings_of_administrators_are_parsed_at_any_size(patch):
    patch.setattr(configs, "_BODY_BYTES_MAX", _UNBOUNDED)


def questions_wait_for_a_client_in_any_size(patch):
    patch.setattr(telemetry, "COMMANDS_BYTES_MAX", _UNBOUNDED)


def bodies_expand_to_any_size(patch):
    patch.setattr(delivered, "BODY_BYTES_MAX", 64 << 20)


def fields_may_have_separators_of_properties(patch):
    patch.setattr(outgoing, "_has_control", lambda _text: False)


MUTANTS = [
    Mutant(
        batch_may_have_any_number_of_messages,
        "a batch takes bounded memory",
        Tests(REMOTING + "producers/test_sent_messages.py::test_a_batch_of_many_empty_messages_is_refused"),
    ),
    Mutant(
        heartbeat_may_have_any_number_of_values,
        "a heartbeat takes bounded time",
        Tests(REMOTING + "test_bodies.py::test_a_wrong_heartbeat_is_refused"),
    ),
    Mutant(
        clients_are_unregistered_by_anyone,
        "a client is unregistered by its own connection only",
        Tests(REMOTING + "test_clients.py::test_a_stranger_with_the_id_of_a_client_cannot_unregister_it"),
    ),
    Mutant(
        one_group_may_fill_the_table,
        "one group has a bound of its own",
        Tests(REMOTING + "test_clients.py::test_one_group_has_a_bound_of_its_own_and_others_still_get_members"),
    ),
    Mutant(
        settings_of_administrators_are_parsed_at_any_size,
        "a body is bounded before it is parsed",
        Tests(REMOTING + "test_admin_configs.py::test_a_body_beyond_its_bound_is_refused_before_it_is_parsed"),
    ),
    Mutant(
        questions_wait_for_a_client_in_any_size,
        "what a client does not read is bounded in bytes",
        Tests(GRPC + "test_settings_and_questions_that_a_client_does_not_read_are_bounded_in_bytes"),
    ),
    Mutant(
        bodies_expand_to_any_size,
        "a small body does not expand to any size",
        Tests(GRPC + "test_a_body_that_expands_to_more_than_clients_send_is_unreadable"),
    ),
    Mutant(
        fields_may_have_separators_of_properties,
        "no field becomes another property",
        Tests(GRPC + "test_no_field_becomes_a_property_of_another_name_and_none_is_too_large"),
    ),
]
