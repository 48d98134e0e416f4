"""After every file operation and every class of lost writes, the log opens and satisfies all guarantees.

The short form runs every operation with every class; a second crash, within the recovery from the first, only for a
sample. `make crashpoints` runs the long form: every byte of the newest write, more second crashes.
"""

import pytest

from commitlog.record.system_records import MessageEntryCodec
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from tests.crashpoints.inspector import Inspector
from tests.crashpoints.workload import WORKLOADS, Workload

CODEC = MessageEntryCodec(clock=lambda: 1_700_000_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "codec"),
    [
        *((name, RAW_ENTRY_CODEC) for name in WORKLOADS),
        # Workloads in which leaders append no-ops.
        *(pytest.param(name, CODEC, id=f"{name} of messages") for name in ("vote_and_lead", "change_members")),
    ],
)
def test_nothing_guaranteed_is_missing_after_a_crash(name, codec, capsys):
    inspector = Inspector(codec)
    work = Workload(inspector.see, codec)
    WORKLOADS[name](work)
    work.end()

    with capsys.disabled():
        print(f"\ncrash points of {name}: {dict(inspector.counts)}")
    assert inspector.counts["images"] > inspector.counts["operations"]
