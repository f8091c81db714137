"""The way to the aggregators: identity, trust, calls, and work taken from them."""
