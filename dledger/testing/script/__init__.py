"""Scenario scripts: a few machines whose messages, clocks and disks change only by commands of a text."""
