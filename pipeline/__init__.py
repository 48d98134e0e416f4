"""The PySpark data pipeline (an optional extra)."""
