"""The settings of a node: options, their values, checks between them, the configuration file.

Names, types, ranges and defaults are in one table, from which `--help-config` is made. Contexts of the command line
are not here but in `cluster.cli`. Servers and the command line import it.
"""
