"""The ports of `store.fs` on the operating system (Linux).

The only package that opens, writes and syncs files: `files` implements the ports, the other modules are its parts
(mapping, reading, metadata of many directories, syncing a directory tree). Programs pass it when they start a node or
open a store; all other code takes a `Files` port. It imports `store.fs` and `store.errors`.
"""
