"""Backups of the log of a group: made over the network, verified, and restored to the directories of a new group.

Making one needs no access to the files of nodes: entries are read with `dledger.client`, in the name of a user. Also
recoveries, which make a new group of one node after the loss of the majority. Not here: the command line
(`cluster.cli.backup`).
"""
