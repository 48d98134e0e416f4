"""After every operation on files and every class of lost writes, the log opens and holds all that was promised.

The short form runs every operation with every class; a second crash, within the recovery from the first, only for a
sample. `make crashpoints` runs the long form: every byte of the newest write, more second crashes.
"""

import pytest

from tests.crashpoints.inspector import IS_LONG, Inspector
from tests.crashpoints.workload import WORKLOADS, Workload


@pytest.mark.slow
@pytest.mark.timeout(7200 if IS_LONG else 300)
@pytest.mark.parametrize("name", WORKLOADS)
def test_nothing_promised_is_missing_after_a_crash(name, capsys):
    inspector = Inspector()
    work = Workload(inspector.see)
    WORKLOADS[name](work)
    work.end()

    with capsys.disabled():
        print(f"\ncrash points of {name}: {dict(inspector.counts)}")
    assert inspector.counts["images"] > inspector.counts["operations"]
