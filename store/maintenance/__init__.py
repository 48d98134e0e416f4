"""Background work of an open store: dispatch, flushes, checkpoints, retention, locks, a clean close.

The modules run `store.access` in an event loop and delete old files; the data formats are in the packages below.
Programs that run a store (a broker, a standalone process, a bench) import it; no other package of `store` does.
"""
