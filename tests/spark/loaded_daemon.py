"""`pyspark.daemon` with the modules of tasks imported: it forks a process for each plan and task.

    python loaded_daemon.py WORKER_MODULE

Otherwise each of these processes imports Arrow and this project, which takes half a second of processor time, and the
garbage collector examines all their objects after each task. Drivers in separate processes use Spark's own daemon.
"""

import gc
import importlib
import runpy
import sys
from pathlib import Path

# As `python -m` has it.
sys.path[0] = str(Path.cwd())
for name in ("pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pipeline.spark.lake", "pipeline.spark.source"):
    importlib.import_module(name)
if sys.argv[1:]:
    importlib.import_module(sys.argv[1])
gc.collect()
gc.freeze()
runpy.run_module("pyspark.daemon", run_name="__main__")
