"""Scenario scripts: a few machines whose messages, clocks and disks move only when a line of text says so."""
