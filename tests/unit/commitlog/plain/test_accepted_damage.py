"""The list of accepted damage, apart from any store."""

from itertools import pairwise

from commitlog.plain.accepted_damage import AcceptedDamage, accept, merge


def test_places_are_found_by_the_ranges_that_they_cover():
    content = memoryview(bytes(range(200)))
    borders = [10, 30, 31, 60]
    places = [accept(1000 + a, content[a:b], "x", "y", 0) for a, b in pairwise(borders)]
    accepted = AcceptedDamage(places)

    def covers(begin, end):
        return accepted.covering(1000 + begin, end - begin, content, 1000) is not None

    assert all(covers(begin, end) for begin in range(10, 60) for end in range(begin + 1, 61))
    assert not any(covers(begin, end) for begin, end in [(9, 20), (59, 61), (60, 61), (0, 5), (100, 101)])
    assert accepted.covering(1010, 50, memoryview(bytes(200)), 1000) is None
    assert accepted.find(1010, content[10:]) == places[0]
    assert accepted.find(1011, content[11:]) is None


def test_place_that_overlaps_a_new_one_is_replaced_by_it():
    """Each place ends at a valid record; when that is damaged later, the new place contains the old one."""
    content = memoryview(bytes(range(200)))

    def places(*ranges):
        return [accept(begin, content[begin:end], "x", "y", 0) for begin, end in ranges]

    known = AcceptedDamage(places((0, 10), (20, 30), (50, 60), (80, 90)))
    merged = merge("store", known, places((25, 55), (90, 95)), 15, 7)

    assert [(place.offset, place.end_offset) for place in merged.places] == [(25, 55), (80, 90), (90, 95)]
    assert [place.accepted_at_ms for place in merged.places] == [7, 0, 7]
