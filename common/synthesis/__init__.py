"""Synthetic releases: noisy counts of whole records, a model fitted to them, records drawn from the model.

`accounting` turns a budget into noise, `rounds` says what is asked in each round, `model` fits a distribution
to the answers, `sample` draws records from it. All of it is a function of public numbers: the plan and the
noisy answers. Only `owner_node.synthesis` counts records and draws noise.
"""
