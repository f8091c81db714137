"""Identifiers made comparable, and told to the aggregator as keyed tokens only."""
