"""What an owner does with its own data for itself: masking and queries, charged to the same ledger."""
