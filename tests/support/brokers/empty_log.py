"""A plain log without records, for tests of broker state alone."""


class EmptyLog:
    """The part of `store.model.commit_log.CommitLog` that the state of a standalone broker reads."""

    begin_offset = end_offset = 0

    def scan(self, _offset, _size_bytes_max):
        return None
