"""Modules that commands must not import, because imports delay every start of `dledger`."""

import subprocess
import sys

# What commands that only talk to brokers load; the last two when they run.
MODULES = (
    "cluster.cli.messages.consume",
    "cluster.cli.messages.produce",
    "cluster.cli.messages.query",
    "cluster.cli.messages.topics",
    "cluster.client.consumer.consumer",
    "cluster.client.producer.producer",
)


def test_commands_that_only_talk_to_a_broker_load_no_numpy():
    program = f"import sys, {', '.join(MODULES)}; print(sorted(sys.modules.keys() & {{'numpy', 'pandas', 'pyarrow'}}))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"
