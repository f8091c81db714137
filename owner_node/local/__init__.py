"""Local work of an owner on its own data: masking and queries, charged to the same ledger as releases."""
