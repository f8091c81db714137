"""Limits of gRPC over mutual TLS that both sides share."""

MESSAGE_LIMIT = 4 * 1024 * 1024
"""Most bytes of one message, either way."""
KEEPALIVE_MS = 30_000
WINDOW_BYTES = 4 * 1024 * 1024
"""What a stream may have under way at its start: three times what 100 Mbit/s with a delay of 100 ms needs.

gRPC measures a connection and adapts the window to it. From the 64 KiB of HTTP/2 it takes seconds to grow,
and congestion control takes a sender that waits for the window for a slow line.
"""
