"""The files `identity` and `peers`: after a crash at any operation of their writes, the directory starts again.

Values that were sent are not lost: the id of the directory, the starts and lives in greetings, and the known lives of
peers. The other files of the directory are tested in `test_crash_points.py`.
"""

from functools import partial
from random import Random

from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import IdentityFile
from dledger.storage.peer_directories import PeerDirectories
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from dledger.types import HardState, Member, Membership, MembershipEntry
from tests.crashpoints.crashes import Crashes
from tests.crashpoints.workload import DIRECTORY, files_on

SECOND_CRASH_STRIDE = 5
LIVES = tuple(range(100, 110))
MEMBERS = (MembershipEntry(0, Membership(tuple(Member(f"n{number}") for number in range(3)), 4711)),)


def start(files, draw):
    """Start a node like `NodeFiles.open` does, and vote, so that later starts find state."""
    identity_file = IdentityFile.check(files, DIRECTORY, "n0", "g")
    files.make_directory(DIRECTORY)
    hard_state = HardStateFile.open(files, DIRECTORY)
    own = identity_file.begin("n0", "g", has_state=hard_state.exists, is_adopting=False, draw=draw)
    peer_directories = PeerDirectories.open(files, DIRECTORY, own)
    peer_directories.learn(MEMBERS)
    return hard_state, peer_directories


class Workload:
    """Restarts a node several times; between the starts two peers connect, which also restart."""

    def __init__(self, see):
        self.see = see
        self.disk = SimDisk(Random(3), FaultCounts())
        self.greeted = None
        self.met = {}
        self.step = ""
        self.random = Random(5)

    def before_operation(self, number):
        self.see(f"{self.step}, operation {number}", self)

    def run(self):
        for number in range(1, 4):
            self.step = f"start {number}"
            hard_state, peer_directories = start(files_on(self.disk, self.before_operation), self.random.randrange)
            self.greeted = peer_directories.own
            self.step = f"start {number}, vote"
            hard_state.save(HardState(number, "n1"))
            for peer_id in ("n1", "n2"):
                self.step = f"start {number}, meeting {peer_id}"
                starts = 2 * number
                assert peer_directories.fault_of(peer_id, 7, starts, LIVES[:starts]) is None
                self.met[peer_id] = starts
        self.step = "end"
        self.before_operation(0)


class Inspector:
    """Starts a node on the disk after a crash, without `--adopt`."""

    def __init__(self):
        self.crashes = Crashes(SECOND_CRASH_STRIDE)

    def see(self, place, work):
        self.crashes.see(place, work.disk, partial(self.look, work.greeted, dict(work.met)))

    @staticmethod
    def look(greeted, met, disk, before_operation):
        _, found = start(files_on(disk, before_operation), Random(6).randrange)
        if greeted is not None:
            assert found.own.directory_id == greeted.directory_id
            assert found.own.starts > greeted.starts
            assert greeted.lives[-1] in found.own.lives, "peers would take this start for one of an old copy"
        for peer_id, starts in met.items():
            assert "old copy" in str(found.fault_of(peer_id, 7, starts - 1, LIVES[: starts - 1]))
            later = starts + 2  # which may have been met already when it crashed
            assert found.fault_of(peer_id, 7, later, LIVES[:later]) is None


def test_directory_opens_after_a_crash_at_any_operation(capsys):
    inspector = Inspector()

    Workload(inspector.see).run()

    with capsys.disabled():
        print(f"\ncrash points of identity and peers: {dict(inspector.crashes.counts)}")
    assert inspector.crashes.counts["images of a second crash"] > 100
