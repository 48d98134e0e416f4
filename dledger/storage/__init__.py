"""The small files of a node: term and vote, identity, checkpoint, snapshots, known peers.

Each module owns one file or one text form and its checksum. The log itself is in `dledger.entries`; what the files
mean for the consensus is in `dledger.core`. Imported by everything above it; it imports `store.fs`, `dledger.types`
and `dledger.errors`.
"""
