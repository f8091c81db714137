"""The state of an owner node: owner.db, the sealed fragments, and the running daemon."""
