"""The small files of a node: term and vote, identity, checkpoint, snapshots, known peers.

Each module implements one file or one text format, with its checksum. The log itself is in `dledger.entries`; the rules
of consensus are in `dledger.core`. All higher packages may import it; it imports `store.fs`, `dledger.types` and
`dledger.errors`.
"""
