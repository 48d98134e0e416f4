"""Planted bugs of the web console: unknown values, viewers, streams of nodes."""

import cluster.console.pages
from cluster.console.hub import Hub, Viewer
from tests.mutants.mutant import Mutant, Tests

VIEWS = "tests/unit/cluster/console/test_views.py::"


def console_shows_what_it_does_not_know_as_zero(patch):
    original = cluster.console.pages.number
    patch.setattr(cluster.console.pages, "number", lambda value: original(value or 0))


def console_watches_nodes_without_a_viewer(patch):
    patch.setattr(Hub, "_end_unless_viewed", lambda _: None)


def console_keeps_all_events_of_a_slow_viewer(patch):
    def add(self, group, node, events):
        self.nodes[group, node.address] = node
        self.events.extend((group, event) for event in events)
        self.is_due.set()

    patch.setattr(Viewer, "add", add)


MUTANTS = (
    Mutant(
        console_shows_what_it_does_not_know_as_zero,
        "unknown is not zero",
        Tests(VIEWS + "test_values_that_are_not_known_are_a_question_mark_and_absent_in_json"),
    ),
    Mutant(
        console_watches_nodes_without_a_viewer,
        "the console is no burden",
        Tests(VIEWS + "test_nodes_are_watched_once_for_all_viewers_and_no_more_after_the_last"),
    ),
    Mutant(
        console_keeps_all_events_of_a_slow_viewer,
        "memory is bounded",
        Tests(VIEWS + "test_a_slow_viewer_gets_the_newest_state_and_the_number_of_lost_events"),
    ),
)
