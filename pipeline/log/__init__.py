"""The log as it lies in files: which stores there are, how far they may be read, and slices of them for tasks."""
