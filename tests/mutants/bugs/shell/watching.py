"""Planted bugs of what watchers get: events of elections, gaps, stalls, places."""

from contextlib import contextmanager
from dataclasses import replace

import dledger.node.watching.state
from dledger.core.events import Transitioned
from dledger.core.raft import Raft
from dledger.node.watching.recorder import EventRecorder
from dledger.node.watching.stalls import StallWatch
from dledger.node.watching.watching import NodeWatching
from tests.mutants.mutant import Mutant, Tests

RECORDER = "tests/unit/dledger/node/watching/test_recorder.py::"
STALLS = "tests/unit/dledger/node/watching/test_stalls.py::"
WATCH = "tests/integration/dledger/service/test_watch.py::"


def transition_that_another_follows_in_the_step_is_not_shown(patch):
    original = Raft.step

    def step(self, event):
        effects = original(self, event)
        last = [effect for effect in effects if isinstance(effect, Transitioned)][-1:]
        return [effect for effect in effects if not isinstance(effect, Transitioned) or effect in last]

    patch.setattr(Raft, "step", step)


def events_that_a_watcher_missed_are_left_out_silently(patch):
    original = EventRecorder.after

    def after(self, sequence, count_max):
        return [event for event in original(self, sequence, count_max) if event.details.lost_count is None]

    patch.setattr(EventRecorder, "after", after)


def follower_with_all_entries_stalls(patch):
    original = StallWatch.look

    def look(self, now_ms, peers):
        return original(self, now_ms, {peer: view._replace(lacks_entries=True) for peer, view in peers.items()})

    patch.setattr(StallWatch, "look", look)


def place_of_a_watcher_that_ended_is_kept(patch):
    original = NodeWatching.place

    @contextmanager
    def place(self):
        try:
            with original(self):
                yield
        finally:
            self.watchers_count += 1

    patch.setattr(NodeWatching, "place", place)


def unknown_position_of_a_follower_is_shown_as_a_number(patch):
    original = dledger.node.watching.state._peer_of

    def peer_of(*arguments, **options):
        peer = original(*arguments, **options)
        return replace(peer, snapshot_sent_bytes=peer.snapshot_sent_bytes or 0)

    patch.setattr(dledger.node.watching.state, "_peer_of", peer_of)


MUTANTS = (
    Mutant(
        transition_that_another_follows_in_the_step_is_not_shown,
        "watchers see each transition",
        Tests("tests/unit/dledger/core/test_observations.py::test_all_transitions_of_one_step_are_shown"),
    ),
    Mutant(
        events_that_a_watcher_missed_are_left_out_silently,
        "watchers know what they missed",
        Tests(RECORDER + "test_a_reader_that_is_too_slow_gets_a_gap_with_the_number_of_lost_events"),
    ),
    Mutant(
        follower_with_all_entries_stalls,
        "a stall is one",
        Tests(STALLS + "test_a_follower_with_all_entries_never_stalls_and_time_counts_from_the_first_that_it_lacks"),
    ),
    Mutant(
        place_of_a_watcher_that_ended_is_kept,
        "places become free",
        Tests(WATCH + "test_more_watchers_than_allowed_are_refused_and_places_become_free"),
    ),
    Mutant(
        unknown_position_of_a_follower_is_shown_as_a_number,
        "unknown is absent",
        Tests(WATCH + "test_every_node_shows_its_state_and_only_the_leader_shows_peers"),
    ),
)
