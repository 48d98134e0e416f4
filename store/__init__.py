"""Local files: file-system port, mapped files, mapped-file queues; the bottom layer, which knows no Raft."""
