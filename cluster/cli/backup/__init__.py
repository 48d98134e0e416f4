"""Commands for backups of a group: `dledger backup` and `restore`; and for the loss of its majority: `dledger recover`.

Not here: how backups are made, read and checked (`cluster.backup`).
"""
