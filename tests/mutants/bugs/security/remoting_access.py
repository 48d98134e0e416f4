"""Planted bugs of access keys and rights at the port of the remoting protocol: what must stay out gets in."""

from cluster.fronts import callers
from cluster.remoting import signatures
from cluster.remoting.consumers.registrations import Registrations
from cluster.remoting.producers.transactions import Transactions
from cluster.remoting.rights import RIGHTS
from cluster.state.access_state import AccessState
from tests.mutants.mutant import Mutant, Tests

SIGNATURES = "tests/unit/cluster/remoting/test_signatures.py::"
NEEDS = "tests/unit/cluster/remoting/test_rights.py::"
PORT = "tests/integration/cluster/remoting/test_access.py::"


def request_without_a_signature_is_served(patch):
    admit = callers.Callers.admit

    async def admitted(self, peer, signed):
        if signed() is not None:
            await admit(self, peer, signed)

    patch.setattr(callers.Callers, "admit", admitted)


def signature_of_a_request_covers_not_its_body(patch):
    content = signatures._content
    patch.setattr(signatures, "_content", lambda request: content(request)[: len(content(request)) - len(request.body)])


def right_is_that_on_a_field_which_the_send_does_not_use(patch):
    patch.setitem(RIGHTS, 310, RIGHTS[10])


def route_of_any_topic_is_shown_to_every_user(patch):
    patch.setitem(RIGHTS, 105, RIGHTS[46])


def message_of_any_topic_is_read_by_its_place_in_the_log(patch):
    patch.setitem(RIGHTS, 33, RIGHTS[46])


def deleted_access_key_stays_valid_where_it_was_used(patch):
    find, seen = AccessState.access_key_of, {}

    def remembered(self, name):
        found = seen[name] = find(self, name) or seen.get(name)
        return found

    patch.setattr(AccessState, "access_key_of", remembered)


def user_takes_the_client_id_of_another_one(patch):
    patch.setattr(Registrations, "_refuse_other_user", lambda *_: None)


def half_message_is_shown_to_every_producer_of_its_group(patch):
    patch.setattr(Transactions, "_members", lambda self, group, _topic: self._producers.producers_of(group))


MUTANTS = [
    Mutant(
        request_without_a_signature_is_served,
        "a broker with users serves only them",
        Tests(PORT + "test_a_request_without_a_valid_signature_is_refused_and_does_nothing"),
    ),
    Mutant(
        signature_of_a_request_covers_not_its_body,
        "a signed request cannot be changed",
        Tests(SIGNATURES + "test_values_of_all_fields_in_the_order_of_their_names_and_the_body_are_signed"),
    ),
    Mutant(
        right_is_that_on_a_field_which_the_send_does_not_use,
        "a right is about the topic that is used",
        Tests(NEEDS + "test_a_request_needs_rights_on_what_its_handler_reads"),
    ),
    Mutant(
        route_of_any_topic_is_shown_to_every_user,
        "what a front answers itself needs rights, too",
        Tests(PORT + "test_a_right_on_another_topic_or_group_or_with_another_action_does_not_suffice"),
    ),
    Mutant(
        message_of_any_topic_is_read_by_its_place_in_the_log,
        "a message is read only with a right on its topic",
        Tests(PORT + "test_a_message_by_its_place_in_the_log_is_read_by_super_users_only"),
    ),
    Mutant(
        deleted_access_key_stays_valid_where_it_was_used,
        "a deleted credential is invalid at once",
        Tests(PORT + "test_a_deleted_key_and_that_of_a_disabled_user_are_refused_at_once_on_an_open_connection"),
    ),
    Mutant(
        user_takes_the_client_id_of_another_one,
        "replies and questions reach the client that they are for",
        Tests(PORT + "test_the_id_of_a_client_of_another_user_is_refused"),
    ),
    Mutant(
        half_message_is_shown_to_every_producer_of_its_group,
        "a question about a transaction goes to producers that may send to its topic",
        Tests(PORT + "test_questions_about_transactions_go_only_to_producers_that_may_send_to_the_topic"),
    ),
]
