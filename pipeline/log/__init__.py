"""The log as files: stores, the offset up to which they may be read, and slices for tasks."""
