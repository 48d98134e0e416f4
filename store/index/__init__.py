"""The key index: which messages have a given key.

The files of `index/`, their layout and the chains through their items. What is indexed is decided by
`store.dispatch`; checks of index files are in `store.check`. `store.dispatch` and everything above may import it; it
does not know the consume queues.
"""
