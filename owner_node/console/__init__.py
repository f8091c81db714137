"""The web pages of one owner node: plans that wait, decisions, budgets, history, connections.

No page shows a value of a record. What is computed from the data, such as the trial of a plan, are shares and
errors, as `owner-node show` prints them.
"""
