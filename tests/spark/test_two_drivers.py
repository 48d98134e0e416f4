"""Two drivers in separate processes with one checkpoint: one of them is ended, and no message is stored twice."""

import json
import re
import uuid

import pytest

from pipeline.lake.lake import DamagedLake, Lake
from pipeline.lake.maintenance import verify
from tests.spark.processes import START_S, StreamProcess, gave_up_on_python
from tests.support.brokers.thread import running_broker
from tests.support.waiting import wait_until
from tests.unit.pipeline.source.test_stream_plan import put

# Spark's errors when the other driver has already written the same file.
_ONE_TOO_MANY = (
    r"concurrently using file:\S*/checkpoint/|one streaming job runs on a specific checkpoint location"
    r"|The checkpoint location file:\S*/checkpoint/\S* should be empty"
)


@pytest.mark.timeout(3 * START_S)
def test_one_of_two_drivers_with_one_checkpoint_fails_with_an_error_that_names_it(tmp_path):
    with running_broker(tmp_path / "broker", "a") as broker:
        source = {"endpoints": broker.endpoints, "subscribe": "a", "startingOffsets": "earliest"}
        # They are one query already, as after a restart: neither is stopped by making the checkpoint.
        (tmp_path / "checkpoint").mkdir()
        (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        drivers = [StreamProcess(tmp_path, source, name) for name in ("one", "two")]
        for driver in drivers:
            driver.launch()
        try:
            sent = 0

            def outputs_of_the_ended():
                nonlocal sent
                put(broker, "a", 0, 3)
                sent += 3
                return [output for driver in drivers if (output := final_output(driver))]

            output = wait_until(outputs_of_the_ended, lambda: "\n".join(driver.output for driver in drivers), START_S)
            unexpected = [each for each in output if not re.search(_ONE_TOO_MANY, each)]
            assert unexpected == [], "\n".join(
                line[:400]
                for each in unexpected
                for line in each.splitlines()
                if "Exception" in line or "Error" in line
            )
            lake = wait_until(lambda: lake_of(drivers, tmp_path / "out", sent), lambda: drivers[0].output, START_S)
        finally:
            for driver in drivers:
                driver.end()

    offsets = [offset for file in lake.files() for offset in lake.read(file, ["queueOffset"]).column(0).to_pylist()]
    assert sorted(offsets) == list(range(sent))
    assert list(verify(lake)) == []


def final_output(driver):
    """Return the output of an ended driver; restart it if a Python process of Spark failed to start in time."""
    if not driver.has_ended:
        return ""
    output = driver.output
    if gave_up_on_python(output):
        driver.launch()
        return ""
    return output


def lake_of(drivers, path, count):
    """Return the lake as soon as it has this many rows or more; a driver continues with it."""
    if all(driver.has_ended for driver in drivers):
        drivers[0].launch()
    try:
        lake = Lake.open(str(path))
    except DamagedLake:
        # No driver has created it yet.
        return None
    return lake if sum(file.rows for file in lake.files()) >= count else None
