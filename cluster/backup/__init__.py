"""Backups of the log of a group: made over the network, verified, and restored to the directories of a new group.

Nothing here needs access to the files of a node: entries are read with `dledger.client`, in the name of a user. Not
here: the command line (`cluster.cli.backup`).
"""
