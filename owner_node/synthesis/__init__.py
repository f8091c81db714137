"""An owner's part of a synthetic release: counts of its records, and its share of the noise."""
