"""The message store of one machine, without a log of its own: files, consume queues, key index, dispatch, access.

The log is a port (`store.model.commit_log`) that `commitlog` implements; `store.fs` is the file system under
everything. It knows neither Raft nor a network. All packages may import `store.fs` and `store.errors`.
"""
