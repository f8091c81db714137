"""Synthetic releases: noisy counts of whole records, a model fitted to them, records drawn from the model.

`accounting` turns a budget into noise, `rounds` says what can be asked and what follows from the answers,
`sums` adds owners' answers under masks, `roles` says who counts with whom where owners hold different
attributes, `model` fits a distribution to them, `sample` draws records from it.
`course` puts the steps into their order. All of it is a function of public numbers: the plan and the noisy
answers. Only `owner_node.synthesis` counts records and draws noise.
"""
