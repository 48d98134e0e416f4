"""Scenario scripts: a few machines whose messages, clocks and disks change only by the commands of a text.

One module parses, the modules `verbs*` have one function for each command, the others print the transcript. Random
faults are in `dledger.testing.nemesis`. `tests/scenarios` and the command `python -m dledger.testing.script` use it.
"""
