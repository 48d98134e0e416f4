"""The data pipeline on Spark: reads logs and brokers, writes lakes, archives and topics. An optional extra.

Only `pipeline.spark` needs PySpark; all other packages compute on Arrow columns, and a broker can run without them.
Spark imports it through `pyspark_dledger`, and the command line loads `dledger spark` from it when that is called; no
other package imports it.
"""
