"""Spark itself runs here, with what the project installs."""


def test_spark_runs_on_this_machine(spark):
    assert 5 == spark.range(5).count()
