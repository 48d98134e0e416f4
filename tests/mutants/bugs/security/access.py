"""Planted bugs of access control: rights that are too wide or outlive a change, logins that show names."""

import cluster.access.rules
from cluster.access.model import Policy
from cluster.access.rules import AccessRules, SubjectRules
from cluster.api.gates.access_gate import AccessGate, CallAdmission
from cluster.state.access_state import AccessState
from dledger.authentication import scram
from tests.mutants.mutant import Mutant, Tests

RULES = "tests/unit/cluster/access/test_rules.py::"
STATE = "tests/unit/cluster/state/test_access_state.py::"
SCRAM = "tests/unit/dledger/authentication/test_scram.py::"
GATE = "tests/integration/cluster/api/access/test_access_control.py::"
LAGGING = "tests/integration/cluster/api/access/test_lagging_nodes.py::"
CLOSED = "a right is granted by a policy alone"


def allow_wins_over_a_deny(patch):
    allows = AccessRules.allows

    def allowed(self, user, resource_type, name, actions, address=None):
        self._cache[user, resource_type, name] = self._grant(user, resource_type, name)._replace(denied=0)
        return allows(self, user, resource_type, name, actions, address)

    patch.setattr(AccessRules, "allows", allowed)


def node_that_lags_refuses_finally(patch):
    patch.setattr(AccessGate, "refusal", lambda _self, refused: refused)


def most_general_policy_alone_counts(patch):
    grants = SubjectRules.grants
    patch.setattr(SubjectRules, "grants", lambda self, *resource: list(grants(self, *resource))[-1:])


def deny_with_sources_is_ignored_for_an_unknown_address(patch):
    patch.setattr(
        cluster.access.rules._Conditional,
        "holds_for",
        lambda self, address: address is not None and any(address in each for each in self.networks),
    )
    patch.setattr(Policy, "holds_for", lambda self, address: address is not None or not self.sources)


def disabled_super_user_may_do_everything(patch):
    grant = AccessRules._grant

    def of_super(self, user, resource_type, name):
        found = self._users.get(user)
        is_super = found is not None and found.is_super
        return cluster.access.rules._EVERYTHING if is_super else grant(self, user, resource_type, name)

    patch.setattr(AccessRules, "_grant", of_super)


def old_rules_stay_after_a_change(patch):
    patch.setattr(AccessState, "_renew_rules", lambda self: None)


def last_administrator_may_be_deleted(patch):
    patch.setattr(AccessState, "_has_administrator_besides", lambda self, name: True)


def session_outlives_a_changed_password(patch):
    kept = AccessState._kept_of

    def same_epoch(self, known, settings):
        return kept(self, known, settings) if known is None else (known.epoch, known.tokens)

    patch.setattr(AccessState, "_kept_of", same_epoch)


def expired_token_is_accepted(patch):
    patch.setattr(AccessState, "user_of_token", lambda self, digest, now_s: self._tokens.get(digest, (None,))[0])


def unknown_user_gets_another_salt_each_time(patch):
    made_up = scram._made_up_verifier
    count = iter(range(1 << 30))
    patch.setattr(scram, "_made_up_verifier", lambda key, user: made_up(key + bytes([next(count) % 256]), user))


def stream_outlives_the_right(patch):
    patch.setattr(CallAdmission, "check_again", lambda self, request: None)


def rights_of_a_stream_are_those_at_its_start(patch):
    look_up = CallAdmission._look_up

    def once(self, access):
        if self._rules is None:
            look_up(self, access)

    patch.setattr(CallAdmission, "_look_up", once)


MUTANTS = (
    Mutant(stream_outlives_the_right, CLOSED, Tests(GATE + "test_a_subscription_ends_when_the_right_ends")),
    Mutant(
        rights_of_a_stream_are_those_at_its_start,
        CLOSED,
        Tests(GATE + "test_a_refused_request_of_a_stream_of_puts_leaves_the_others"),
    ),
    Mutant(allow_wins_over_a_deny, CLOSED, Tests(RULES + "test_decision_by_policies")),
    Mutant(
        most_general_policy_alone_counts,
        CLOSED,
        Tests(RULES + "test_decision_by_policies"),
    ),
    Mutant(
        deny_with_sources_is_ignored_for_an_unknown_address,
        CLOSED,
        Tests(RULES + "test_an_unknown_address_is_denied_by_policies_with_sources"),
    ),
    Mutant(
        disabled_super_user_may_do_everything, CLOSED, Tests(RULES + "test_users_that_are_unknown_disabled_or_super")
    ),
    Mutant(old_rules_stay_after_a_change, CLOSED, Tests(STATE + "test_rules_follow_each_change")),
    Mutant(
        last_administrator_may_be_deleted,
        "access control stays on",
        Tests(STATE + "test_an_administrator_is_always_left"),
    ),
    Mutant(
        session_outlives_a_changed_password,
        CLOSED,
        Tests(STATE + "test_a_session_ends_with_the_password_or_the_user_and_with_nothing_else"),
    ),
    Mutant(expired_token_is_accepted, CLOSED, Tests(STATE + "test_tokens_are_found_by_their_digest_until_they_expire")),
    Mutant(
        unknown_user_gets_another_salt_each_time,
        "a login shows no names",
        Tests(SCRAM + "test_an_unknown_user_looks_like_a_known_one"),
    ),
    Mutant(
        node_that_lags_refuses_finally,
        "a user that exists is served",
        Tests(LAGGING + "test_producer_repeats_what_a_node_refuses_that_does_not_know_its_user_yet"),
    ),
)
