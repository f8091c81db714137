"""The ledger of every budget: charged once, never refilled, and halted when it lacks what it had."""
