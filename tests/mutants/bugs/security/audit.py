"""Planted bugs of the audit log: what a caller could hide, forge, read or fill."""

import dataclasses
import json

import cluster.audit.files
import cluster.audit.log
import cluster.audit.record
from cluster.api.gates.access_gate import CallAdmission
from cluster.api.gates.call_audit import CallAudit
from cluster.api.login_calls import LoginCalls
from cluster.audit.files import RotatedFile
from cluster.audit.line_window import LineWindow
from tests.mutants.mutant import Mutant, Tests

AUDIT = "tests/unit/cluster/audit/"
CALLS = "tests/integration/cluster/api/access/test_audit.py::"
RECORDED = "what administrators do, and what is refused, is recorded"
BOUNDED = "no caller fills or forges the audit log"


def audit_log_lacks_refusals(patch):
    patch.setattr(CallAdmission, "_record_refusal", lambda self, request, refused: None)


def audit_log_lacks_actions_without_an_answer(patch):
    done = CallAudit.done

    def with_answer(self, method, request, response, caller):
        if response is not None:
            done(self, method, request, response, caller)

    patch.setattr(CallAudit, "done", with_answer)


def audit_log_has_a_line_for_every_refusal(patch):
    patch.setattr(LineWindow, "add", lambda self, record, key, sort: [record])


def audit_log_counts_refusals_of_every_name(patch):
    patch.setattr("cluster.audit.line_window.KEYS_PER_WINDOW_MAX", 1 << 30)


def audit_log_has_text_as_it_was_sent(patch):
    dumps = json.dumps
    patch.setattr(
        cluster.audit.record.json,
        "dumps",
        lambda *values, **options: _Raw(dumps(*values, ensure_ascii=False, **options)),
    )


class _Raw(str):
    __slots__ = ()

    def encode(self, *_):
        return super().encode("utf-8", "surrogatepass")


def audit_log_lets_any_number_wait(patch):
    patch.setattr(cluster.audit.log, "WAITING_MAX", 1 << 30)


def audit_log_is_readable_by_others(patch):
    patch.setattr(cluster.audit.files, "_MODE", 0o644)


def audit_log_loses_old_files_when_a_rotation_fails(patch):
    rotate = RotatedFile._rotate

    def keeping_size(self):
        size = self._size_bytes
        try:
            rotate(self)
        except OSError:
            self._size_bytes = size
            raise

    patch.setattr(RotatedFile, "_rotate", keeping_size)


def audit_log_has_unknown_names_of_logins(patch):
    failed = LoginCalls._failed

    async def known(self, peer, exchange, error):
        return await failed(self, peer, exchange and dataclasses.replace(exchange, is_known=True), error)

    patch.setattr(LoginCalls, "_failed", known)


MUTANTS = (
    Mutant(
        audit_log_lacks_refusals, RECORDED, Tests(CALLS + "test_every_method_that_needs_rights_records_its_refusal")
    ),
    Mutant(
        audit_log_lacks_actions_without_an_answer,
        RECORDED,
        Tests(CALLS + "test_an_action_whose_caller_goes_away_is_recorded"),
    ),
    Mutant(
        audit_log_has_a_line_for_every_refusal, BOUNDED, Tests(CALLS + "test_a_flood_of_refusals_leaves_a_few_lines")
    ),
    Mutant(
        audit_log_counts_refusals_of_every_name,
        BOUNDED,
        Tests(AUDIT + "test_line_window.py::test_callers_with_many_names_are_counted_as_one"),
    ),
    Mutant(
        audit_log_has_text_as_it_was_sent,
        BOUNDED,
        Tests(AUDIT + "test_record.py::test_text_of_a_request_cannot_begin_a_line_or_control_a_terminal"),
    ),
    Mutant(
        audit_log_lets_any_number_wait,
        BOUNDED,
        Tests(AUDIT + "test_log.py::test_more_than_may_wait_is_lost_counted_and_reported"),
    ),
    Mutant(
        audit_log_is_readable_by_others,
        "secrets are for their owner",
        Tests(AUDIT + "test_files.py::test_files_are_of_their_owner_alone"),
    ),
    Mutant(
        audit_log_loses_old_files_when_a_rotation_fails,
        RECORDED,
        Tests(AUDIT + "test_files.py::test_a_new_file_that_cannot_be_made_displaces_no_old_one"),
    ),
    Mutant(
        audit_log_has_unknown_names_of_logins,
        "no log has a secret",
        Tests(CALLS + "test_logins_are_recorded_and_names_of_unknown_users_are_not"),
    ),
)
