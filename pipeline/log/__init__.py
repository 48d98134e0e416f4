"""The log as files: which stores there are, up to which offset they may be read, and slices of them for tasks."""
