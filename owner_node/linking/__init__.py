"""Linking of persons: the linkage key, and the keyed tokens that alone identify persons to the aggregator."""
