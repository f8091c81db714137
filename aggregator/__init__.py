"""The one listener: checks schemas, hands out budgets, collects and joins protected fragments."""
