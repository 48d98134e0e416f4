"""The PySpark data pipeline (an optional extra); no code yet."""
