"""Planted bugs of the front for official clients: what loses, doubles or damages messages, or makes calls fail."""

import re
import zlib

from cluster.fronts import callers
from cluster.grpc_v2 import delivered, memberships, outgoing, renewal_table, renewing, sends, signatures, telemetry
from cluster.protocol.errors import RequestFailed
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.state.access_keys import AccessKeys
from dledger.authentication import front_tokens
from store.model.message import UNIQUE_KEY
from tests.mutants.mutant import Mutant, Tests

TRANSLATION = "tests/unit/cluster/grpc_v2/test_translation.py::"
RENEWAL = "tests/unit/cluster/grpc_v2/test_renewal.py::"
CALLERS = "tests/unit/cluster/grpc_v2/test_callers.py::"
MEMBERSHIPS = "tests/unit/cluster/grpc_v2/test_memberships.py::"
FRONT_TOKENS = "tests/unit/dledger/authentication/test_front_tokens.py::"
TELEMETRY = "tests/unit/cluster/grpc_v2/test_telemetry.py::"
LINK = "tests/unit/cluster/fronts/test_leader_link.py::"


def repeated_send_has_no_key_by_which_it_is_recognised(patch):
    encode = outgoing.encode_properties
    patch.setattr(
        outgoing,
        "encode_properties",
        lambda given: encode({name: value for name, value in given.items() if name != UNIQUE_KEY}),
    )


def compressed_body_is_delivered_as_it_is(patch):
    patch.setattr(delivered, "uncompressed_body", lambda _sys_flag, body: body)


def call_that_the_old_leader_lost_is_not_repeated(patch):
    patch.setattr(RequestFailed, "is_worth_repeating", property(lambda self: self.is_worth_trying))


def queue_of_a_message_group_depends_on_the_node(patch):
    def queues(self, messages, count):
        self._turn += 1
        return [(zlib.crc32(each.message_group.encode()) + self._turn) % count for each in messages]

    patch.setattr(sends.Sends, "_queues", queues)


def client_whose_user_lacks_the_right_is_asked_about_transactions(patch):
    patch.setattr(telemetry.Telemetry, "_has_rights", lambda *_: True)


def settings_show_a_group_to_a_user_without_rights(patch):
    answer = telemetry.Telemetry._answer
    patch.setattr(telemetry.Telemetry, "_answer", lambda self, settings, **_: answer(self, settings, shows_group=True))


def simple_consumer_without_rights_gets_no_settings(patch):
    patch.setattr(telemetry, "_PUSH_CONSUMERS", frozenset({mq.PUSH_CONSUMER, mq.SIMPLE_CONSUMER}))


def call_that_a_go_client_repeats_has_the_first_signature(patch):
    headers = signatures._headers
    patch.setattr(signatures, "_headers", lambda metadata: headers(list(metadata)[::-1]))


def date_of_the_client_in_rust_is_refused(patch):
    patch.setattr(signatures, "_DATE", re.compile(r"[0-9]{8}T[0-9]{6}Z"))


def bomb_of_gzip_is_uncompressed_whole(patch):
    patch.setattr(outgoing, "BODY_SIZE_MAX", 1 << 30)


def refusals_are_final_before_the_node_has_caught_up(patch):
    patch.setattr(callers.Callers, "_require_caught_up", lambda self, refusal: None)


def messages_of_a_push_consumer_are_renewed_without_end(patch):
    patch.setattr(renewal_table, "RENEWED_MS_MAX", 1 << 60)


def silent_push_consumer_keeps_its_messages(patch):
    patch.setattr(renewal_table, "SILENCE_MS_MAX", 1 << 60)


def end_of_a_push_consumer_is_lost_in_a_renewal(patch):
    changed = renewal_table.RenewalTable.changed

    def forgetting(self, row, handle, invisible_ms):
        row.is_ending, row.invisible_ms = False, invisible_ms
        changed(self, row, handle, invisible_ms)

    patch.setattr(renewal_table.RenewalTable, "changed", forgetting)


def call_during_a_renewal_uses_the_old_handle(patch):
    async def current(self, key):
        return self.table.current(key)

    patch.setattr(renewing.Renewing, "current", current)


def front_without_a_client_may_do_everything(patch):
    may = callers.Callers.may
    patch.setattr(callers.Callers, "may", lambda self, client, need: client is None or may(self, client, need))


def signature_of_any_time_is_accepted(patch):
    patch.setattr(signatures, "check_date", lambda _date, _now_s: None)


def deleted_user_leaves_its_access_keys(patch):
    patch.setattr(AccessKeys, "forget_user", lambda _self, _user: None)


def rights_of_a_client_are_those_at_the_address_of_the_front(patch):
    packed = front_tokens._packed
    patch.setattr(front_tokens, "_packed", lambda _address: packed(None))


def token_of_a_front_survives_a_new_secret(patch):
    mac = front_tokens._mac
    patch.setattr(front_tokens, "_mac", lambda key, data, _secret: mac(key, data, ""))


def body_that_fills_a_record_is_put_as_it_is(patch):
    patch.setattr(outgoing, "_stored", lambda body: (body, 0))


def compressed_body_is_not_marked(patch):
    patch.setattr(outgoing, "COMPRESSED", 0)


def silent_consumer_stays_a_member(patch):
    patch.setattr(memberships, "SILENCE_MS_MAX", 1 << 60)


def consumer_that_ends_stays_a_member(patch):
    patch.setattr(memberships.FrontMembers, "ended", lambda _self, _consumer: None)


def members_of_a_front_have_no_bound(patch):
    seen = memberships.FrontMembers.seen

    def unbounded(self, key):
        patch.setattr(memberships, "MEMBERS_MAX", 1 << 30)
        seen(self, key)

    patch.setattr(memberships.FrontMembers, "seen", unbounded)


MUTANTS = [
    Mutant(
        body_that_fills_a_record_is_put_as_it_is,
        "bodies of 4 MiB are accepted, as clients are permitted to send them",
        Tests(TRANSLATION + "test_a_body_that_does_not_fit_into_a_record_is_put_compressed_or_refused"),
    ),
    Mutant(
        compressed_body_is_not_marked,
        "clients get what was sent",
        Tests(TRANSLATION + "test_a_body_that_does_not_fit_into_a_record_is_put_compressed_or_refused"),
    ),
    Mutant(
        silent_consumer_stays_a_member,
        "a consumer that has failed is shown no longer",
        Tests(MEMBERSHIPS + "test_a_consumer_that_is_silent_leaves_and_one_with_heartbeats_stays"),
    ),
    Mutant(
        consumer_that_ends_stays_a_member,
        "a group without consumers can be deleted",
        Tests(MEMBERSHIPS + "test_a_consumer_is_a_member_with_its_subscriptions_until_it_ends"),
    ),
    Mutant(
        members_of_a_front_have_no_bound,
        "members leave places for calls",
        Tests(MEMBERSHIPS + "test_further_consumers_than_there_are_places_are_no_members"),
    ),
    Mutant(
        refusals_are_final_before_the_node_has_caught_up,
        "no user is refused because a node has just started",
        Tests(CALLERS + "test_a_node_that_has_not_caught_up_with_a_leader_has_no_final_refusals"),
    ),
    Mutant(
        messages_of_a_push_consumer_are_renewed_without_end,
        "a message that is not processed is given again at last",
        Tests(RENEWAL + "test_after_three_hours_a_message_is_given_again_after_the_pause_of_its_attempt"),
    ),
    Mutant(
        silent_push_consumer_keeps_its_messages,
        "the messages of a consumer that has failed are given again",
        Tests(RENEWAL + "test_a_consumer_that_is_silent_has_ended"),
    ),
    Mutant(
        end_of_a_push_consumer_is_lost_in_a_renewal,
        "the messages of a consumer that has ended are given again soon",
        Tests(RENEWAL + "test_a_consumer_that_ends_during_a_renewal_is_given_its_last_change_after_it"),
    ),
    Mutant(
        call_during_a_renewal_uses_the_old_handle,
        "an acknowledgement is not lost because of a renewal",
        Tests(RENEWAL + "test_a_call_with_a_handle_that_is_being_changed_waits_for_the_new_one"),
    ),
    Mutant(
        front_without_a_client_may_do_everything,
        "a front has no rights of its own",
        Tests(CALLERS + "test_without_a_client_the_front_has_no_rights_and_a_token_that_is_refused"),
    ),
    Mutant(
        signature_of_any_time_is_accepted,
        "a signature is valid for a bounded time",
        Tests(CALLERS + "test_wrong_unknown_old_and_missing_signatures_are_refused_delayed_and_recorded"),
    ),
    Mutant(
        deleted_user_leaves_its_access_keys,
        "the credentials of a user end with it",
        Tests(
            "tests/unit/cluster/state/test_access_keys.py::"
            "test_an_access_key_of_a_disabled_or_deleted_user_is_not_valid"
        ),
    ),
    Mutant(
        rights_of_a_client_are_those_at_the_address_of_the_front,
        "policies are about the address of the client",
        Tests(FRONT_TOKENS + "test_a_token_names_the_access_key_and_the_address_of_the_client"),
    ),
    Mutant(
        token_of_a_front_survives_a_new_secret,
        "what was signed with an old secret ends with it",
        Tests(FRONT_TOKENS + "test_a_token_of_another_cluster_secret_key_or_time_is_refused"),
    ),
    Mutant(
        repeated_send_has_no_key_by_which_it_is_recognised,
        "a repeated send stores nothing again",
        Tests(TRANSLATION + "test_a_message_is_put_with_the_clients_id_by_which_a_repeated_send_is_recognised"),
    ),
    Mutant(
        compressed_body_is_delivered_as_it_is,
        "clients get what was sent",
        Tests(TRANSLATION + "test_a_compressed_message_is_delivered_uncompressed_with_the_digest_of_what_is_sent"),
    ),
    Mutant(
        call_that_the_old_leader_lost_is_not_repeated,
        "a change of the leader is no error",
        Tests(LINK + "test_a_call_is_repeated_at_the_next_leader"),
    ),
    Mutant(
        queue_of_a_message_group_depends_on_the_node,
        "message groups are in order",
        Tests(TRANSLATION + "test_messages_of_one_group_have_one_queue_at_every_node_and_others_take_turns"),
    ),
    Mutant(
        bomb_of_gzip_is_uncompressed_whole,
        "the cost of a request is bounded",
        Tests(TRANSLATION + "test_a_body_in_gzip_is_put_uncompressed_and_at_most_4_mib_of_it"),
    ),
    Mutant(
        client_whose_user_lacks_the_right_is_asked_about_transactions,
        "messages are shown to users with rights",
        Tests(TELEMETRY + "test_a_producer_without_the_right_to_send_is_answered_and_not_asked_about_transactions"),
    ),
    Mutant(
        settings_show_a_group_to_a_user_without_rights,
        "groups are shown to users with rights",
        Tests(
            TELEMETRY + "test_a_simple_consumer_without_rights_is_answered_and_shown_neither_its_group_nor_as_a_member"
        ),
    ),
    Mutant(
        simple_consumer_without_rights_gets_no_settings,
        "a refusal is an error, not a client that never starts",
        Tests(
            TELEMETRY + "test_a_simple_consumer_without_rights_is_answered_and_shown_neither_its_group_nor_as_a_member"
        ),
    ),
    Mutant(
        call_that_a_go_client_repeats_has_the_first_signature,
        "a repeated call is not refused",
        Tests(CALLERS + "test_the_last_of_repeated_headers_count_as_a_go_client_adds_those_of_each_attempt"),
    ),
    Mutant(
        date_of_the_client_in_rust_is_refused,
        "signatures of official clients are accepted",
        Tests(CALLERS + "test_dates_in_the_form_of_the_client_in_rust_are_accepted"),
    ),
]
