"""Compacted topics: an index of the latest message of each key, derived from the log.

`rows` decides which rows of an index are kept; `index_file` stores them; `manifest` names the current files, so that
one atomic write replaces all of them; `compaction` reads the log, and has the state of one store.

Not here: which topics are compacted, and the copies in the log that replace expiring records (`cluster.delivery`);
reads of such topics (`store.access.compacted_reads`).
"""
