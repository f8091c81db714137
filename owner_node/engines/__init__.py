"""The records of a release, pinned in memory, or in scratch and sorted there."""
