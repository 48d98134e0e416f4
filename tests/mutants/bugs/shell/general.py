"""Planted bugs of the shell: event batches, pending appends and reads, syncs, frames, connections, service, client."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import dledger.client.aio.sender
from dledger.client.aio.batching_sender import BatchingSender
from dledger.client.outcomes import NotAppended, Refused
from dledger.client.reading import ReadSession
from dledger.driver.syncer import GroupSyncer
from dledger.errors import ResponseCode
from dledger.node.event_batches import EventBatches
from dledger.node.node import Node
from dledger.node.observer import NodeObserver
from dledger.peer.handshake import Handshake
from dledger.peer.link import PeerLink
from dledger.peer.wire.buffer import FrameBuffer
from dledger.pending.appends import AppendResult, PendingAppends, _success
from dledger.pending.reads import PendingReads
from dledger.service.pipelined_call import PipelinedCall
from dledger.storage.peer_directories import PeerDirectories
from dledger.testing.options import quick_elections
from dledger.testing.shell.options import ShellNemesisOp
from store.errors import StorageFailed
from tests.mutants.mutant import Mutant, ShellSeeds

OUTCOME = ("Violation: outcome", "Violation: acknowledged is committed", "Violation: log content")
LOST = (*OUTCOME, "Violation: durable", "Violation: equal logs", "Violation: state machine safety")
READ = ("Violation: linearizable read", "Violation: read")
STUCK = ("Violation: liveness", "Violation: connections", "Violation: no unjustified warning")
FAILED = ("Violation: a node runs on a good disk", "Violation: no error gets lost")


def with_nemesis(*nemesis_ops):
    def shape(options):
        return replace(options, nemesis_ops=nemesis_ops, nemesis_interval_us=150_000)

    return shape


with_elections = with_nemesis(ShellNemesisOp.KILL, ShellNemesisOp.ISOLATE, ShellNemesisOp.RESET_CONNECTIONS)
with_cuts = with_nemesis(ShellNemesisOp.ISOLATE, ShellNemesisOp.SPLIT, ShellNemesisOp.PAUSE)


def with_broken_streams(options):
    shaped = with_nemesis(ShellNemesisOp.RESET_CONNECTIONS)(options)
    return replace(shaped, nemesis_interval_us=60_000, read_share=0.5, cancel_rate=0.0, tasks_count=8)


def with_power_cuts(options):
    shaped = with_nemesis(ShellNemesisOp.CUT_POWER_OF_ALL, ShellNemesisOp.SLOW_DISK)(options)
    return replace(shaped, is_flush_sync=True, sync_max_us=8_000, read_share=0.1)


def with_failing_disks(options):
    return replace(with_nemesis(ShellNemesisOp.FAIL_SYNC, ShellNemesisOp.CUT_POWER)(options), is_flush_sync=True)


def with_stale_leaders(options):
    return replace(with_cuts(options), read_share=0.5, lease_share=0.0)


def with_short_terms(options):
    """Leaders of five nodes soon lose their followers, so that the next one may commit truncated entries."""
    shaped = with_nemesis(ShellNemesisOp.KILL, ShellNemesisOp.ISOLATE, ShellNemesisOp.SPLIT)(options)
    return replace(
        shaped,
        node_count=5,
        clock_rates_ppm=(1_000_000,) * 5,
        raft=quick_elections(options.raft),
        links=replace(options.links, max_us=10_000, spike_rate=0.05, spike_us=50_000),
        is_flush_sync=True,
        client_count=2,
        tasks_count=8,
        think_max_us=20_000,
        batch_max=1,
        read_share=0.0,
        lease_share=0.0,
        cancel_rate=0.0,
        nemesis_interval_us=50_000,
        downtime_max_us=200_000,
        safety_us=3_000_000,
    )


# Without a bug, no run with these shapes may fail.
SOUND = (
    with_elections,
    with_cuts,
    with_broken_streams,
    with_power_cuts,
    with_failing_disks,
    with_stale_leaders,
    with_short_terms,
)

# ------------------------------------------------------------------------------------------------ pending appends


def append_whose_index_has_another_entry_is_answered_with_success(patch):
    def is_settled(_, pending, commit_index, term_at):
        del term_at
        if pending.last_index > commit_index:
            return False
        pending.answer(_success(pending, []))
        return True

    patch.setattr(PendingAppends, "_is_settled", is_settled)


def append_that_waits_too_long_is_reported_as_refused(patch):
    def expire(self, now_s):
        by_age = self._by_age
        while by_age and (by_age[0].future.done() or now_s - by_age[0].taken_s >= self._timeout_s):
            by_age.popleft().answer(AppendResult(ResponseCode.LEADER_NOT_READY))

    patch.setattr(PendingAppends, "expire", expire)


def truncated_append_is_reported_as_refused(patch):
    """Entries truncated here may have been committed by another leader."""

    def truncated(self, first_index):
        while self._waiting and self._waiting[-1].last_index >= first_index:
            pending = self._waiting.pop()
            self._release(pending)
            pending.answer(AppendResult(ResponseCode.TERM_CHANGED))

    patch.setattr(PendingAppends, "truncated", truncated)


def appends_of_a_node_that_stops_are_reported_as_refused(patch):
    original = PendingAppends.end
    patch.setattr(PendingAppends, "end", lambda self, _: original(self, AppendResult(ResponseCode.NOT_LEADER)))


def appends_do_not_end_at_truncations(patch):
    patch.setattr(NodeObserver, "on_truncated", lambda *_: None)


# ------------------------------------------------------------------------------------------------ pending reads


def service_reads_the_commit_index_without_a_quorum(patch):
    async def read_index(self, *, is_lease_allowed=False):
        del is_lease_allowed
        return self.commit_index

    patch.setattr(Node, "read_index", read_index)


def read_joins_a_read_index_request_that_is_in_flight(patch):
    original = PendingReads.ask

    def ask(self, future, *, is_lease_allowed=False):
        if self._asked:
            next(iter(self._asked.values()))[1].append(future)
        else:
            original(self, future, is_lease_allowed=is_lease_allowed)

    patch.setattr(PendingReads, "ask", ask)


# ----------------------------------------------------------------------------------------- event batches and syncs


def failed_sync_is_reported_as_success(patch):
    def sync_inline(self, ticket):
        with suppress(StorageFailed):
            ticket.sync()
        self._ended(ticket, 0.0001)

    patch.setattr(GroupSyncer, "_sync_inline", sync_inline)
    patch.setattr(GroupSyncer, "_sync_in_thread", sync_inline_later(sync_inline))


def sync_inline_later(sync_inline):
    return lambda self, ticket: self._loop.call_soon(partial(sync_inline, self), ticket)


def sync_is_reported_before_its_thread_has_done_it(patch):
    def sync_in_thread(self, ticket):
        self._worker.run(ticket.sync, lambda _: None)
        self._loop.call_soon(self._ended, ticket, 0.0001)

    patch.setattr(GroupSyncer, "_sync_in_thread", sync_in_thread)


def iteration_loses_events_that_arrived_while_the_driver_worked(patch):
    """The inbox is emptied after the driver's work instead of before it; messages and syncs are lost."""
    original = EventBatches.on_synced
    counts = {"synced": 0}

    def on_synced(self, ticket, duration_s):
        counts["synced"] += 1
        # Every hundredth is lost: a sync that never ends.
        if counts["synced"] % 100:
            original(self, ticket, duration_s)

    patch.setattr(EventBatches, "on_synced", on_synced)


# ------------------------------------------------------------------------------------------------ frames, connections


def begin_of_a_frame_is_lost_between_two_reads(patch):
    original = FrameBuffer._make_space

    def make_space(self, wanted):
        if not wanted:
            # An incomplete header.
            self._begin = self._end
        original(self, wanted)

    patch.setattr(FrameBuffer, "_make_space", make_space)


def handshake_confuses_the_dialling_peer_with_the_dialled_one(patch):
    original = Handshake.answer

    def answer(self, asked):
        hello, refused = original(self, asked)
        return replace(hello, self_id=asked.self_id), refused

    patch.setattr(Handshake, "answer", answer)


def late_greeting_is_reported_as_an_old_copy(patch):
    patch.setattr(PeerDirectories, "is_late", lambda *_: False)


def lost_connection_is_not_dialled_again(patch):
    original = PeerLink.dial_again

    def dial_again(self, connection):
        if connection.is_bulk:
            original(self, connection)

    patch.setattr(PeerLink, "dial_again", dial_again)


# ------------------------------------------------------------------------------------------------ service, client


def answers_of_a_stream_go_to_the_oldest_waiter(patch):
    """As if answers arrived in the order of the requests: the request is taken from a queue instead of the answer."""
    original = PipelinedCall.__init__
    original_take = PipelinedCall._decided

    def init(self, begin, answer):
        original(self, begin, answer)
        self._ids = []

        def numbered(request):
            self._ids.append(request.request_id)
            return begin(request)

        self._begin = numbered

    def decided(self, request_id, future):
        del request_id
        original_take(self, self._ids.pop(0), future)

    patch.setattr(PipelinedCall, "__init__", init)
    patch.setattr(PipelinedCall, "_decided", decided)


def client_retries_an_append_with_an_unknown_outcome(patch):
    def failure_of_append(address, code, details):
        return Refused(ResponseCode.NETWORK_ERROR, f"{address}: {code} {details}")

    patch.setattr(dledger.client.aio.sender, "failure_of_append", failure_of_append)


def client_reports_an_append_past_its_deadline_as_refused(patch):
    def sweep_stream(self, stream, now_s):
        for batch in stream.in_flight.values():
            for item in batch.items:
                if batch.sent_at + self._answer_timeout_s <= now_s and not item.future.done():
                    item.future.set_exception(NotAppended(ResponseCode.NETWORK_ERROR, "too late"))

    patch.setattr(BatchingSender, "_sweep_stream", sweep_stream)


def client_gives_every_caller_of_a_batch_the_first_places(patch):
    from dledger.client.outcomes import places_of

    def resolve(batch, response):
        places = places_of(response.first_index, response.term, response.positions)
        for item in batch.items:
            if not item.future.done():
                item.future.set_result(places[: len(item.bodies)])

    patch.setattr(dledger.client.aio.sender, "_resolve", resolve)


def read_that_continues_at_another_node_repeats_the_last_entry(patch):
    original = ReadSession.broke

    def broke(self, address, code, details):
        if self._next_index:
            self._next_index -= 1
            self._walk = type(self._walk)(index=-1, term=0, chain_crc=-1)
        original(self, address, code, details)

    patch.setattr(ReadSession, "broke", broke)


def read_that_continues_at_another_node_skips_an_entry(patch):
    original = ReadSession.request

    def request(self):
        is_again = self._stream_begin is not None
        asked = original(self)
        if is_again and asked.WhichOneof("begin") == "index":
            asked.index += 1
        return asked

    patch.setattr(ReadSession, "request", request)


MUTANTS = (
    Mutant(
        append_whose_index_has_another_entry_is_answered_with_success,
        "outcomes are true",
        ShellSeeds(LOST, with_elections, 60),
    ),
    Mutant(append_that_waits_too_long_is_reported_as_refused, "outcomes are true", ShellSeeds(OUTCOME, with_cuts)),
    Mutant(truncated_append_is_reported_as_refused, "outcomes are true", ShellSeeds(OUTCOME, with_short_terms, 400)),
    Mutant(
        appends_of_a_node_that_stops_are_reported_as_refused,
        "outcomes are true",
        ShellSeeds(OUTCOME, with_failing_disks),
    ),
    Mutant(appends_do_not_end_at_truncations, "outcomes are true", ShellSeeds(FAILED + LOST, with_elections)),
    Mutant(
        service_reads_the_commit_index_without_a_quorum, "reads are linearizable", ShellSeeds(READ, with_stale_leaders)
    ),
    Mutant(read_joins_a_read_index_request_that_is_in_flight, "reads are linearizable", ShellSeeds(READ)),
    Mutant(
        failed_sync_is_reported_as_success, "acknowledged is durable", ShellSeeds(FAILED + LOST, with_failing_disks)
    ),
    Mutant(
        sync_is_reported_before_its_thread_has_done_it,
        "acknowledged is durable",
        ShellSeeds(FAILED + LOST, with_power_cuts),
    ),
    Mutant(iteration_loses_events_that_arrived_while_the_driver_worked, "liveness", ShellSeeds(STUCK)),
    Mutant(begin_of_a_frame_is_lost_between_two_reads, "frames are whole", ShellSeeds(STUCK)),
    Mutant(
        handshake_confuses_the_dialling_peer_with_the_dialled_one,
        "peers verify each other's directory",
        ShellSeeds(STUCK),
    ),
    Mutant(late_greeting_is_reported_as_an_old_copy, "warnings are true", ShellSeeds(STUCK, with_elections, 60)),
    Mutant(lost_connection_is_not_dialled_again, "liveness", ShellSeeds(STUCK, with_elections)),
    Mutant(answers_of_a_stream_go_to_the_oldest_waiter, "outcomes are true", ShellSeeds(OUTCOME)),
    Mutant(client_retries_an_append_with_an_unknown_outcome, "nothing twice", ShellSeeds(OUTCOME, with_elections)),
    Mutant(client_reports_an_append_past_its_deadline_as_refused, "outcomes are true", ShellSeeds(OUTCOME, with_cuts)),
    Mutant(client_gives_every_caller_of_a_batch_the_first_places, "outcomes are true", ShellSeeds(OUTCOME)),
    Mutant(
        read_that_continues_at_another_node_repeats_the_last_entry,
        "reads",
        ShellSeeds(READ + STUCK, with_broken_streams),
    ),
    Mutant(read_that_continues_at_another_node_skips_an_entry, "reads", ShellSeeds(READ + STUCK, with_broken_streams)),
)
