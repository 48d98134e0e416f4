"""The same calls to RocketMQ 5.3.3 and to our broker: every difference is explained, and every explanation is one.

RocketMQ's answers are recorded, so our broker is compared with them without Java. With Java and RocketMQ's jars
(`make interop`) a real name server and broker answer the calls again, as recorded.

`BESIDE_RECORD=1` writes what RocketMQ answers now, and the table of docs/compared-with-rocketmq.md.
"""

import json
import os

import pytest

from tests.interop.beside.compared import our_answers, real_answers
from tests.interop.beside.explanations import RECORDED, differences, explanations, faults, recorded
from tests.interop.beside.page import PAGE, updated
from tests.interop.beside.real_rocketmq import missing
from tests.support.waiting import run

pytestmark = pytest.mark.slow

IS_RECORDED = os.environ.get("BESIDE_RECORD") == "1"


def test_a_real_rocketmq_answers_as_recorded(tmp_path):
    if missing():
        pytest.skip(missing())
    found = run(real_answers(tmp_path))
    if IS_RECORDED:
        RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert list(found) == list(recorded())
    assert [] == [f"{each.call}: {each.part}: {each.rocketmq!r}, now {each.ours!r}" for each in
                  differences(recorded(), found)]  # fmt: skip


def test_our_answers_differ_from_rocketmqs_only_as_explained_and_the_page_has_all_explanations(tmp_path):
    ours = run(our_answers(tmp_path))
    lines = faults(differences(recorded(), ours), explanations())
    assert not lines, "\n".join(lines)
    page = PAGE.read_text()
    if IS_RECORDED:
        PAGE.write_text(updated(page, ours))
    assert updated(PAGE.read_text(), ours) == PAGE.read_text(), f"write {PAGE.name} again: BESIDE_RECORD=1"
