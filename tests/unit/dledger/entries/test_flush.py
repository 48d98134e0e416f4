"""The durable index if syncs overlap and truncations happen in between."""

from dledger.entries.flush import EntriesFlushProgress


def test_completed_flush_makes_its_entries_durable():
    progress = EntriesFlushProgress(3)
    ticket = progress.begin(7, [])
    assert progress.durable_index == 3

    ticket.sync()
    assert progress.durable_index == 3
    progress.end(ticket)

    assert progress.durable_index == 7


def test_flush_counts_only_after_all_older_ones_have_completed():
    """The younger one covers only the files written after the older one was taken."""
    progress = EntriesFlushProgress(-1)
    older, younger = progress.begin(5, []), progress.begin(9, [])
    younger.sync()

    progress.end(younger)
    assert progress.durable_index == -1
    older.sync()
    progress.end(older)

    assert progress.durable_index == 9


def test_truncation_lowers_the_durable_index_and_that_of_running_flushes():
    progress = EntriesFlushProgress(10)
    ticket = progress.begin(20, [])

    progress.truncate(8)
    assert progress.durable_index == 7
    assert ticket.last_index == 7
    ticket.sync()
    progress.end(ticket)

    assert progress.durable_index == 7


def test_entries_rewritten_after_a_truncation_need_their_own_sync():
    progress = EntriesFlushProgress(4)
    in_flight = progress.begin(9, [])
    progress.truncate(6)
    again = progress.begin(9, [])
    in_flight.sync()
    progress.end(in_flight)

    assert progress.durable_index == 5
    again.sync()
    progress.end(again)
    assert progress.durable_index == 9
