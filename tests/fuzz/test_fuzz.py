"""Every decoder of untrusted bytes handles the kept inputs, and changed ones; `make fuzz` tries many more."""

from random import Random

import pytest

from tests.fuzz.__main__ import executions_of_each
from tests.fuzz.instrumented import build_instrumented
from tests.fuzz.mutation import changed_inputs
from tests.fuzz.target import CORPUS
from tests.fuzz.targets import TARGETS

SEED = 1
CHANGED = 300


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_decoder_handles_kept_and_changed_inputs(target):
    kept = target.corpus()
    for data in kept:
        target.run(data)
    for number, data in enumerate(changed_inputs(kept, Random(f"{SEED} {target.name}"), CHANGED)):
        try:
            target.run(data)
        except Exception:
            print(f"{target.name}: seed {SEED}, input {number}: {data!r}")
            raise


def test_every_corpus_belongs_to_a_target_and_is_small():
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.glob("*/*")) < 256 << 10


def test_all_targets_together_have_no_fewer_executions_than_wanted():
    assert [executions_of_each(10, count) * count for count in (1, 3, 4, 10, 11)] == [10, 12, 12, 10, 11]


def test_fuzzer_reports_why_native_code_is_not_instrumented(tmp_path, monkeypatch):
    monkeypatch.setenv("CLANG", str(tmp_path / "missing"))
    assert isinstance(build_instrumented(tmp_path), str)
    assert not list(tmp_path.iterdir())
