"""The release as a protocol without I/O: events in, state out, and what every owner should do now."""
