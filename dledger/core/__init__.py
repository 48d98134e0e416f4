"""The pure consensus core: events in, effects out; no clock, socket, file or thread."""
