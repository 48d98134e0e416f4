"""Commands on stored files: inspect, export, verify, rebuild.

They open nothing for writing but `rebuild`, and need no running node. Only commands import it.
"""
