"""The programs in docs/examples work as documented."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"


@pytest.mark.slow
def test_dictionary_survives_the_loss_of_its_leader_and_of_a_disk(monkeypatch, capsys):
    # In this process, where a pause also stops the clocks of its nodes; and no command times out because of a pause.
    monkeypatch.setattr("dledger.pending.appends.PendingAppends.expire", lambda *_: None)

    runpy.run_path(str(EXAMPLES / "key_value.py"), run_name="__main__")

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Fifty-one puts, and a swap tried three times: [False, True, False]"
    answers = [line.split("  ")[-1] for line in lines if line.startswith("  n")]
    assert answers == [
        *['{"colour": "blue", "count": 49, "stock": 7}'] * 3,
        *['{"colour": "green", "count": 49, "stock": 7}'] * 2,
        *['{"colour": "green", "count": null, "stock": 7}'] * 3,
    ]
