"""The key index: finds the messages with a given key.

The files of `index/`, their layout and the chains of their items. The indexed keys are chosen by `store.dispatch`;
checks of index files are in `store.check`. `store.dispatch` and all higher packages may import it; it does not depend
on the consume queues.
"""
