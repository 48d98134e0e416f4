"""The handling of damage when a log is opened: torn tails are truncated, corruption is refused."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from dledger.entries.format.entry import HEADER
from store.errors import CorruptData

FILE = 2048
DIRECTORY = "/n0"
SIZES = [60, 0, 300, 1, 700, 500, 90, 400, 33]


def holder_of(places, position):
    return next((index for index, (begin, end) in enumerate(places) if begin <= position < end), None)


# ----------------------------------------------------------------------------------------- every byte of a small log


def test_any_byte_changed_is_corruption_or_costs_the_vote_in_the_last_entry(machine):
    """A flipped bit in synced data is never taken for a write that a power cut tore."""
    places = machine.write_log(SIZES)
    image = machine.data_image()
    last = len(SIZES) - 1
    blank_at = next(end for (_, end), (begin, _) in pairwise(places) if begin != end)
    assert 0 < blank_at < FILE < places[last][1]

    for position in [*range(blank_at + 8), *range(FILE, places[last][1] + 60)]:
        machine.restore(image)
        machine.patch_data(position, bytes([machine.read(position, 1)[0] ^ 0x10]))
        damaged = machine.data_image()
        index = holder_of(places, position)
        is_last = index == last or position >= places[last][1]
        with pytest.raises(
            CorruptData, match="damaged after it was durable" if is_last else "a good entry follows"
        ) as failure:
            machine.open()
        begin = places[last][0 if index == last else 1] if is_last else blank_at if index is None else places[index][0]
        assert failure.value.position == begin % FILE
        assert failure.value.path == f"{DIRECTORY}/data/{begin - begin % FILE:020d}"
        assert machine.data_image() == damaged
        if is_last:
            check_that_it_is_cut_with_leave(machine, begin, last - (index == last))


def check_that_it_is_cut_with_leave(machine, begin, last_index):
    damages = []
    store = machine.open(lambda damage: damages.append(damage) or "given up")
    (damage,) = damages
    assert (store.last_index, store.end_position) == (last_index, begin)
    assert (damage.index, damage.log_position) == (last_index + 1, begin)
    assert "damaged tail cut" in store.recovery_notes[-1]
    assert store.recovery_notes[-1].endswith("; given up")
    store.abandon()
    assert not any(machine.read(begin, 100))
    machine.open().abandon()


def test_any_byte_changed_below_the_checkpoint_is_corruption_also_in_the_last_entry(machine):
    places = machine.write_log(SIZES)
    machine.open().close()
    image = machine.data_image()

    for position in range(FILE, places[-1][1], 7):
        machine.restore(image)
        machine.patch_data(position, bytes([machine.read(position, 1)[0] ^ 0x80]))
        with pytest.raises(CorruptData, match="entries up to 8 were durable here"):
            machine.open()


def torn_log(machine):
    """Yield (byte, places, sizes) for each byte of a small log, without all following bytes."""
    sizes = [size for size in SIZES if size]  # an empty body has no byte that could be missing
    places = machine.write_log(sizes)
    image = machine.data_image()
    end = places[-1][1]
    for torn_at in [*range(places[4][1] + 8), *range(FILE, end)]:
        machine.restore(image)
        for base in (0, FILE):
            begin, stop = max(torn_at, base), min(end, base + FILE)
            if begin < stop:
                machine.patch_data(begin, bytes(stop - begin))
        yield torn_at, places, sizes


def test_tail_torn_at_any_byte_leaves_the_whole_entries_before_it(machine):
    """Torn between two sectors or two entries it is a lost write; torn elsewhere it can only be damage."""
    counts = Counter()
    for torn_at, places, sizes in torn_log(machine):
        kept = sum(entry_end <= torn_at for _, entry_end in places)
        damages = []
        store = machine.open(lambda damage, found=damages: found.append(damage) or "")
        is_border = torn_at % 512 == 0 or torn_at in {end for _, end in places}
        assert not (damages and is_border), torn_at
        counts[bool(damages)] += 1
        assert store.last_index == kept - 1, torn_at
        assert store.end_position == (places[kept - 1][1] if kept else 0)
        assert [store.get(index).body for index in range(kept)] == [
            machine.body(i, s) for i, s in enumerate(sizes[:kept])
        ]
        content = machine.data_image()
        assert not any(content[f"{0:020d}"][min(store.end_position, FILE) :]) or store.end_position > FILE
        store.append([b"new"], kept, 9)
        store.abandon()
        again = machine.open()
        assert (again.last_index, again.get(kept).body, again.recovery_notes) == (kept, b"new", ())
        again.abandon()
    assert min(counts[False], counts[True]) > 0


def test_tail_torn_below_the_checkpoint_is_corruption(machine):
    places = machine.write_log(SIZES)
    machine.open().close()
    position = places[-1][0]
    machine.patch_data(position, bytes(places[-1][1] - position))

    with pytest.raises(CorruptData, match=r"expected magic .*entries up to 8 were durable here"):
        machine.open()


# -------------------------------------------------------------------------------- writes that never reached the disk


@pytest.mark.parametrize("sector", range(6))
def test_lost_sector_among_unsynced_ones_is_a_torn_tail(machine, sector):
    """A power cut may lose any unsynced sector, also with intact entries after it."""
    places = machine.write_log(SIZES)
    position = sector * 512
    assert position < places[-1][1]
    machine.patch_data(position, bytes(512))

    store = machine.open()

    kept = sum(end <= position for _, end in places)
    assert store.last_index == kept - 1
    assert [store.get(index).index for index in range(kept)] == list(range(kept))
    assert "torn tail cut" in store.recovery_notes[0]


def test_lost_end_of_a_sector_is_a_torn_tail(machine):
    """The sector reached the disk before the later of two writes to it."""
    places = machine.write_log([100, 100, 100, 100, 100, 100])
    position = places[2][0]
    machine.patch_data(position, bytes(512 - position % 512))

    assert machine.open().last_index == 1


@pytest.mark.parametrize("size", [8, 48, 100, 148])
def test_zeros_that_end_inside_a_sector_count_as_damage(machine, size):
    places = machine.write_log([100, 100, 100, 100, 100, 100])
    machine.patch_data(places[1][0], bytes(size))

    with pytest.raises(CorruptData, match="a good entry follows"):
        machine.open()


def test_lost_blank_is_a_torn_tail(machine):
    """The next file's entries are on the disk, the blank before them is not."""
    places = machine.write_log([900, 900, 900, 900])
    machine.patch_data(places[1][1], bytes(8))

    store = machine.open()

    assert (store.last_index, store.end_position) == (1, places[1][1])
    assert list(machine.data_image()) == [f"{0:020d}"]


def test_empty_entry_whose_checksums_were_torn_off_is_not_good(machine):
    """Its header straddles two sectors, and the second never reached the disk: the rest looks like Java's."""
    store = machine.open()
    store.append([bytes([1]) * (512 - 36 - 48)], 0, 0)
    (position,) = store.append([b""], 1, 1, magic=2)
    assert position % 512 == 512 - 36
    store.abandon()
    machine.patch_data(512, bytes(512))

    assert machine.open().last_index == 0


@pytest.mark.parametrize("visible", range(39, 48))
def test_a_few_bits_of_an_empty_entry_that_ends_with_zeros_in_the_next_sector_are_no_lost_write(machine, visible):
    """Nothing of it is lost: its checksum and size of the body are zeros (seed 127354)."""
    random = Random(visible)
    store = machine.open()
    store.append([bytes([1]) * (512 - visible - 48)], 0, 1)
    for term in range(2, 1 << 24):
        position = store.append([b""], 1, term, magic=2)[0]
        if not any(machine.read(512, 512)):
            break
        store.truncate(1)
    store.abandon()
    image = machine.data_image()
    assert position == 512 - visible

    for _ in range(40):
        machine.restore(image)
        # The chain checksum covers neither the position nor the channel, but both are known.
        for bit in random.sample(range(8 * visible), random.randint(1, 3)):
            at = position + bit // 8
            machine.patch_data(at, bytes([machine.read(at, 1)[0] ^ 1 << bit % 8]))
        with pytest.raises(CorruptData, match="damaged after it was durable"):
            machine.open()


@pytest.mark.parametrize("visible", range(1, 48))
@pytest.mark.parametrize("body", [b"", b"of the second entry"], ids=["empty", "with a body"])
def test_lost_rest_of_an_entry_is_a_torn_tail_wherever_its_header_is_cut(machine, visible, body):
    store = machine.open()
    store.append([bytes([1]) * (512 - visible - 48)], 0, 1)
    store.append([body], 1, 1, magic=2)
    store.abandon()
    is_complete = not any(machine.read(512, 512))
    machine.patch_data(512, bytes(512))

    assert machine.open().last_index == int(is_complete)


@pytest.mark.parametrize("last", [1, 4, 128, 5, 255])
def test_lost_sector_that_held_one_byte_of_an_entry_is_a_torn_tail(machine, last):
    """Also where the byte is a single bit, which looks like a bit that changed to zero (seed 140035)."""
    store = machine.open()
    store.append([b"first"], 0, 1)
    begin = store.end_position + 48
    (position,) = store.append([b"x" * (512 - begin) + bytes([last])], 1, 1)
    store.abandon()
    assert position + 48 == begin
    assert machine.read(512, 2) == bytes([last, 0])
    machine.patch_data(512, bytes(512))

    assert machine.open().last_index == 0


# ---------------------------------------------------------------------------------------- what only looks like entries


def test_body_that_looks_like_an_entry_is_not_a_good_entry_after_a_bad_one(machine):
    """A client could otherwise make a node refuse its start."""
    store = machine.open()
    store.append([b"first"], 0, 1)
    position = store.end_position
    fake = HEADER.pack(1, 48, 2, 1, position + 48 + 20, 0, 0, 0, 0)
    store.append([bytes(20) + fake + b"tail"], 1, 1)
    store.abandon()
    machine.patch_data(store_end(machine) - 2, b"!")

    store = machine.open(lambda _: "")

    assert store.last_index == 0


def store_end(machine):
    return len(bytes(machine.data().cache).rstrip(b"\0"))


def java_entry(index, term, position, content):
    return HEADER.pack(1, 48 + len(content), index, term, position, 0, 0, 0, len(content)) + content


def write_java_data(machine, entries):
    """Lay out entries without checksums, as (index, term, position, body), in data files that Java might have left."""
    machine.open().abandon()
    files = machine.process()
    for _, _, position, _ in entries:
        if machine.data(position - position % FILE) is None:
            files.create(f"{DIRECTORY}/data/{position - position % FILE:020d}", FILE)
            files.sync_directory(f"{DIRECTORY}/data")
    for index, term, position, content in entries:
        machine.patch_data(position, java_entry(index, term, position, content))


def test_leftovers_of_an_older_term_after_a_java_log_are_cut(machine):
    """Java truncates without overwriting: old bytes after its last entry are of an older term."""
    write_java_data(machine, [(0, 1, 0, b"a" * 52), (1, 3, 100, b"b" * 40), (2, 1, 200, b"c" * 52), (3, 1, 300, b"d")])

    store = machine.open()

    assert (store.last_index, store.last_term, store.end_position) == (1, 3, 188)
    assert not any(machine.read(188, 300))


def test_bad_java_entry_with_good_ones_after_it_is_corruption(machine):
    write_java_data(machine, [(0, 1, 0, b"a" * 52), (1, 1, 100, b"b" * 52), (2, 1, 200, b"c" * 52)])
    machine.patch_data(100 + 8, b"\xff")

    with pytest.raises(CorruptData, match="a good entry follows at position 200"):
        machine.open()


def test_java_positions_that_are_all_off_by_the_same_are_accepted(machine):
    """DLedger 0.4 keeps the leader's position in the header after a snapshot."""
    write_java_data(machine, [(0, 1, 0, b"")])
    machine.patch_data(0, java_entry(0, 1, 5000, b"x" * 52) + java_entry(1, 1, 5100, b"y" * 52))
    store = machine.open()
    assert [store.position_of(index) for index in range(2)] == [0, 100]
    assert store.get(1).position == 5100
    store.append([b"ours"], 2, 2)
    store.append([b"ours too"], 3, 2)
    store.abandon()
    machine.patch_data(100 + 4, b"\xff")

    with pytest.raises(CorruptData):
        machine.open()


# ----------------------------------------------------------------------------- zeros that belong to an entry, and Java


def test_header_of_an_entry_with_zeros_of_its_own_is_checked_to_the_last_bit(machine):
    """Its sectors of zeros may be lost ones; its header was written, so it must be correct."""
    store = machine.open()
    store.append([b"first"], 0, 1)
    (position,) = store.append([bytes(1100)], 1, 1)
    store.abandon()
    image = machine.data_image()

    for at in range(position, position + 48):
        machine.restore(image)
        machine.patch_data(at, bytes([machine.read(at, 1)[0] ^ 1]))
        with pytest.raises(CorruptData, match="damaged after it was durable"):
            machine.open()


@pytest.mark.parametrize("has_next", [False, True])
def test_one_bit_of_a_body_with_zeros_of_its_own_is_no_lost_write(machine, has_next):
    """Its sectors of zeros may be lost ones, but then more than one bit would be wrong (seed 990 met it)."""
    store = machine.open()
    store.append([b"first"], 0, 1)
    (position,) = store.append([b"head" + bytes(1100) + b"end"], 1, 1)
    if has_next:
        store.append([b"next"], 2, 1)
    store.abandon()
    image = machine.data_image()

    for at in [*range(position + 48, position + 1155, 37), position + 1154]:
        for bit in (1, 0x80):
            machine.restore(image)
            machine.patch_data(at, bytes([machine.read(at, 1)[0] ^ bit]))
            with pytest.raises(CorruptData, match="a good entry follows" if has_next else "damaged after it was"):
                machine.open()


def test_more_damage_in_a_body_with_zeros_of_its_own_looks_like_a_lost_write(machine):
    """Known, and bounded by the interval of checkpoints (docs/disk-format.md)."""
    store = machine.open()
    store.append([b"first"], 0, 1)
    (position,) = store.append([bytes(1100)], 1, 1)
    store.abandon()
    machine.patch_data(position + 48, b"\x03")

    assert machine.open().last_index == 0


def test_first_entry_is_checked_as_ours_where_a_node_of_ours_ran(machine):
    for has_run in (False, True):
        if has_run:
            machine.process().create_from(f"{DIRECTORY}/membership", [])
        store = machine.open()
        (position,) = store.append([b"no-op"], 0, 1)
        store.abandon()
        machine.patch_data(position + 15, b"\x08")
        damages = []
        store = machine.open(lambda damage, found=damages: found.append(damage) or "")
        assert (store.last_index, len(damages)) == (-1, has_run)
        store.abandon()


def test_bad_last_entry_of_java_is_cut_as_java_cuts_it(machine):
    write_java_data(machine, [(0, 1, 0, b"a" * 52), (1, 1, 100, b"b" * 52)])
    machine.patch_data(100 + 8, b"\xff")

    assert machine.open().last_index == 0
