"""Connections to aggregators: credentials, calls, and the work that they request."""
