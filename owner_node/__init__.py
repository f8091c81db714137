"""An organisation's own daemon: the only process that sees original data."""
