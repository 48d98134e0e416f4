"""The CommitLog of messages over the replicated log (the message issues build it); no code yet."""
