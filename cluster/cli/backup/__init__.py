"""Commands for backups of a group: `dledger backup`.

Not here: how backups are made, read and checked (`cluster.backup`).
"""
