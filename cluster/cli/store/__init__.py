"""Commands on stored files: inspect, export, verify, rebuild.

Only `rebuild` opens files for writing. The commands need no running node. Only `cluster.cli.app` loads them.
Not here: the checks themselves (`commitlog.offline`, `store.check`).
"""
