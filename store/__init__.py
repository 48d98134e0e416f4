"""The message store of one machine, except its log: files, consume queues, key index, dispatch, access.

The log is a port (`store.model.commit_log`) that `commitlog` implements; `store.fs` is the file system layer. Raft and
networks are elsewhere. All packages may import `store.fs` and `store.errors`.
"""
