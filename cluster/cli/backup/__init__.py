"""Commands for backups of a group: `dledger backup` and `restore`.

Not here: how backups are made, read and checked (`cluster.backup`).
"""
