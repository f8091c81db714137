"""The aggregator: checks schemas, plans releases, collects and joins protected fragments."""
