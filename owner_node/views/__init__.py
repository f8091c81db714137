"""Documents for people about plans, budgets and state: what commands print and pages show."""
