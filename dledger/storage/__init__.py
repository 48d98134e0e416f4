"""The small files of a node: term and vote, identity, checkpoint, snapshots, known peers.

Each module has one file or one text format, with its checksum. The log itself is in `dledger.entries`; the meaning of
the files for consensus is in `dledger.core`. Imported by everything above it; it imports `store.fs`, `dledger.types`
and `dledger.errors`.
"""
