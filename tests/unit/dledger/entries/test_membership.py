"""Memberships in log entries, in pushes and in their file."""

import pytest

from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE, ENTRY_NOOP
from dledger.entries.membership_file import FILE_SIZE_BYTES, MembershipFile, drop_unheld
from dledger.node.persistent_state import SavedMemberships
from dledger.storage.hard_state import HardStateFile
from dledger.storage.membership_codec import MembershipUnreadable
from dledger.types import UNKNOWN_TERM, Member, Membership, MembershipEntry
from store.fs.linux.files import OsFiles

TWO = Membership((Member("n1", "h:1"), Member("ñ2", "h:2", is_voter=False, incarnation=2**63)))
ONE = Membership((Member("n1", "h:1"),))


def test_raw_codec_writes_one_sorted_object():
    magic, _, body, _ = RAW_ENTRY_CODEC.membership(ONE)

    assert magic == ENTRY_CONFIG_CHANGE
    assert body == b'{"members":[{"address":"h:1","id":"n1","incarnation":0,"isVoter":true}],"version":1}'


@pytest.mark.parametrize("membership", [TWO, ONE, Membership()])
def test_codec_decodes_what_it_encoded(membership):
    assert RAW_ENTRY_CODEC.decode(*RAW_ENTRY_CODEC.membership(membership)[:3]) == membership


def test_other_entries_contain_no_membership():
    assert RAW_ENTRY_CODEC.decode(1, 0, RAW_ENTRY_CODEC.membership(ONE).body) is None
    assert RAW_ENTRY_CODEC.decode(2, 0, b"") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"members":[],"version":2}',
        b'{"members":[],"version":1,"more":1}',
        b'{"members":{},"version":1}',
        b'{"members":[1],"version":1}',
        b'{"members":[{"address":"h","id":"n","incarnation":0}],"version":1}',
        b'{"members":[{"address":"h","id":"","incarnation":0,"isVoter":true}],"version":1}',
        b'{"members":[{"address":"h","id":"n","incarnation":-1,"isVoter":true}],"version":1}',
        b'{"members":[{"address":"h","id":"n","incarnation":true,"isVoter":true}],"version":1}',
        RAW_ENTRY_CODEC.membership(Membership(ONE.members * 2)).body,
    ],
)
def test_body_that_cannot_be_read_is_named(body):
    with pytest.raises(MembershipUnreadable, match="entry of magic 3: expected a membership in JSON, found"):
        RAW_ENTRY_CODEC.decode(ENTRY_CONFIG_CHANGE, 0, body)


def write_with_memberships(store):
    """Write 0: normal, 1: TWO, 2: no-op, 3: ONE, 4: normal, all of term 1."""
    for membership, body, magic in (
        (None, b"a", 1),
        (TWO, b"", 0),
        (None, b"", ENTRY_NOOP),
        (ONE, b"", 0),
        (None, b"b", 1),
    ):
        content = (magic, body) if membership is None else RAW_ENTRY_CODEC.membership(membership)[::2]
        store.append([content[1]], store.last_index + 1, 1, magic=content[0])


def test_check_of_a_push_finds_its_memberships(make_log):
    source, target = make_log("n0").open(), make_log("n1").open()
    write_with_memberships(source)

    def check(first_index, last_index):
        span = source.span_of(first_index, last_index)
        return target.check_push(span, source.read_span(span), UNKNOWN_TERM)

    assert check(0, 4) == (MembershipEntry(1, TWO), MembershipEntry(3, ONE))
    assert check(2, 3) == (MembershipEntry(3, ONE),)
    assert check(0, 0) == check(2, 2) == check(4, 4) == ()


def test_push_with_an_unreadable_membership_stops_the_node(make_log):
    source, target = make_log("n0").open(), make_log("n1").open()
    source.append([b"{}"], 0, 1, magic=ENTRY_CONFIG_CHANGE)
    span = source.span_of(0, 0)

    with pytest.raises(MembershipUnreadable):
        target.check_push(span, source.read_span(span), -1)
    assert target.last_index == -1


@pytest.fixture
def file(tmp_path):
    return MembershipFile.open(OsFiles(), f"{tmp_path}/n0")


def test_missing_file_gives_no_memberships(file):
    assert not file.exists
    assert file.load() is None


def test_saved_memberships_are_loaded_and_the_file_size_is_fixed(file, tmp_path):
    for entries in ((MembershipEntry(-1, ONE),), (MembershipEntry(-1, ONE), MembershipEntry(7, TWO))):
        file.save(entries)
        assert file.exists
        assert MembershipFile.open(OsFiles(), f"{tmp_path}/n0").load() == entries
        for name in ("membership", "membership.spare"):
            assert (tmp_path / "n0" / name).stat().st_size == FILE_SIZE_BYTES


def test_oldest_memberships_are_replaced_by_the_newest(file):
    many = [MembershipEntry(index, TWO) for index in range(400)]

    file.save(many)

    kept = file.load()
    assert 100 < len(kept) < 400
    assert list(kept) == many[-len(kept) :]


def test_a_flipped_bit_in_any_byte_of_the_content_is_detected(file, tmp_path):
    file.save([MembershipEntry(3, ONE)])
    path = tmp_path / "n0" / "membership"
    good = path.read_bytes()

    for position in range(len(good.rstrip())):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1 << position % 8]) + good[position + 1 :])
        with pytest.raises(MembershipUnreadable, match="membership: expected 'dledger-membership 1'"):
            file.load()
    for content in (b"", good[:40]):
        path.write_bytes(content)
        with pytest.raises(MembershipUnreadable):
            file.load()


def test_memberships_whose_entries_the_log_lacks_are_dropped(log):
    store = log.open()
    write_with_memberships(store)
    base, two, one = MembershipEntry(-1, ONE), MembershipEntry(1, TWO), MembershipEntry(3, ONE)

    def kept(*entries):
        return drop_unheld(entries, store)

    assert kept(base, two, one) == (base, two, one)
    assert kept(base, two, MembershipEntry(3, TWO), MembershipEntry(5, ONE)) == (base, two)
    assert kept(base, MembershipEntry(0, ONE), MembershipEntry(2, ONE)) == (base,)
    # Saved for a reset of the log that a crash prevented.
    assert kept(MembershipEntry(500, TWO)) == (MembershipEntry(500, TWO),)


def test_membership_that_a_crash_kept_from_the_log_is_not_in_force_once_the_head_is_deleted(make_log):
    """Seed 9910: the file kept the name of an entry that was never written, and other entries took its index."""
    log, membership_file = make_log("n0"), MembershipFile.open(OsFiles(), make_log("n0").directory)
    store = log.open()
    settled, lost = MembershipEntry(-1, TWO), MembershipEntry(1, ONE)
    store.append([b"a"], 0, 1)
    membership_file.save([settled, lost])
    store = log.reopen()

    def load():
        hard_state = HardStateFile.open(OsFiles(), log.directory)
        return SavedMemberships(membership_file).load(store, hard_state, Membership()).memberships

    assert load() == (settled,)
    store.append([bytes(900)] * 20, 1, 2)
    store.delete_before(15)
    assert store.begin_index > lost.index
    store = log.reopen()

    assert load() == (settled,)


def test_the_newest_membership_before_the_log_stays_in_force(log):
    store = log.open()
    store.reset(100, 0, 3)
    old, newer, beyond = MembershipEntry(-1, ONE), MembershipEntry(80, TWO), MembershipEntry(100, ONE)

    assert drop_unheld((old, newer, beyond), store) == (newer,)
