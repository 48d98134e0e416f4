"""The settings of a node: options, parsing of values, checks of relations, the configuration file.

One table has names, types, ranges and defaults; `--help-config` is generated from it. Contexts of the command line are
in `cluster.cli`. Servers and the command line import this package.
"""
