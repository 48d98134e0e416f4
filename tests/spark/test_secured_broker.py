"""Spark reads from and writes to a broker with mutual TLS and users, by the files that the environment names."""

import json
import subprocess
import sys

import pytest

from cluster.access.users import UserSettings
from cluster.protocol.topic_config import TopicConfig
from cluster.state.access_commands import SetUser
from cluster.state.commands import SetTopic
from dledger.authentication.verifier import Verifier
from tests.spark.processes import ROOT, START_S, session_settings, spark_environment
from tests.support.brokers.thread import BrokerThread
from tests.support.certificates import new_authority, node_pair, tls_of, user_pair, write_tls

OURS = new_authority()
TOPIC, ROWS = "orders", 300
PROGRAM = """
import json, sys

from pyspark.sql import SparkSession

settings, broker, topic, rows = json.loads(sys.argv[1])
builder = SparkSession.builder.appName("secured")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
frame = spark.range(0, rows, 1, 2).selectExpr("cast(id as string) as body")
frame.write.format("dledger").options(endpoints=broker, topic=topic).mode("append").save()
found = spark.read.format("dledger").options(endpoints=broker, subscribe=topic).load()
print("FOUND", json.dumps(sorted(int(bytes(row.body)) for row in found.select("body").collect())))
spark.stop()
"""


def run(folder, broker, shown):
    """Run the program as the user of a certificate; return what it printed, and its errors."""
    files = write_tls(folder / "client", shown)
    names = {"DLEDGER_TLS_CA": files.authority, "DLEDGER_TLS_CERT": files.certificate, "DLEDGER_TLS_KEY": files.key}
    (folder / "local").mkdir(exist_ok=True)
    environment = spark_environment(folder, **names, PYTHONPATH=str(ROOT))
    given = json.dumps([session_settings(folder), broker.endpoints, TOPIC, ROWS])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("has_right", [True, False], ids=["with the right", "without"])
def test_spark_has_the_rights_of_its_certificate(tmp_path, has_right):
    """Goal: driver and executors use TLS and a user's certificate. Method: a driver in a process of its own."""
    port = tls_of(node_pair(OURS, "b", group="b"), OURS, is_certificate_required=True)
    broker = BrokerThread(tmp_path / "store", security=port)
    try:
        broker.start()
        broker.change(SetTopic(TopicConfig(TOPIC, 2, 2)))
        broker.change(
            SetUser(UserSettings("admin", is_super=True, verifier=Verifier(b"s" * 16, 8_192, b"k" * 32, b"v" * 32)))
        )
        broker.change(SetUser(UserSettings("spark", is_super=has_right)))
        output, errors = run(tmp_path, broker, tls_of(user_pair(OURS, "spark", group="b"), OURS))
        written = sorted(map(int, broker.bodies(TOPIC)))
    finally:
        broker.close()

    if has_right:
        assert f"FOUND {json.dumps(list(range(ROWS)))}" in output, errors
        assert written == list(range(ROWS))
    else:
        assert "FOUND" not in output
        assert "user 'spark' lacks " in errors, errors
        assert written == []
