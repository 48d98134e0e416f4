"""The results of many runs are combined into one table and one line of the ledger."""

from dledger.testing.__main__ import main
from dledger.testing.runner import Result, run_seed
from dledger.testing.totals import Totals, append_to_ledger, next_seed


def totals_of(*results):
    totals = Totals()
    for result in results:
        totals.add(result)
    return totals


def test_ledger_continues_where_it_ends(tmp_path):
    path = str(tmp_path / "ledger.txt")
    assert next_seed(path) == 1
    run = run_seed(1)
    failure = Result(seed=2, node_count=None, shape="", summary=None, failure="Violation: term: went back")

    append_to_ledger(path, totals_of(run, failure), 36.0)
    append_to_ledger(path, totals_of(Result(3, None, "", run.summary, "")), 72.0)

    assert next_seed(path) == 4
    heads = [line for line in (tmp_path / "ledger.txt").read_text().splitlines() if line.startswith("#")]
    first, second = (line for line in (tmp_path / "ledger.txt").read_text().splitlines() if not line.startswith("#"))
    assert len(heads) == 2
    seeds, _, _, wall_hours, events, digest, failed = first.split()
    assert (seeds, wall_hours, events, failed) == ("1-2", "0.010", str(run.summary.event_count), "2")
    assert second.split()[0] == "3-3"
    assert second.split()[-1] == "none"
    assert digest != second.split()[-2]


def test_hash_of_a_batch_depends_on_every_run():
    run = run_seed(1)
    other = Result(run.seed, None, run.shape, run_seed(2).summary, "")

    assert totals_of(run).state_hash == totals_of(run).state_hash
    assert len({totals_of(run).state_hash, totals_of(run, run).state_hash, totals_of(other).state_hash}) == 3


def test_table_counts_work_and_faults_of_all_runs(capsys, tmp_path):
    status = main(["--seeds", "2", "--table", "--ledger", str(tmp_path / "ledger.txt")])

    assert status == 0
    printed = capsys.readouterr().out
    assert "seeds 1 to 2" in printed
    assert "elections" in printed
    assert "power cut" in printed
    assert "seed=1 " not in printed
    assert next_seed(str(tmp_path / "ledger.txt")) == 3
