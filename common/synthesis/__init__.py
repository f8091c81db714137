"""Synthetic releases: noisy counts of whole records, and records that agree with them.

`accounting` turns a budget into noise, `histogram` and `binning` say what one-way counts and bins are, `sums`
adds owners' answers under masks, `roles` and `counters` say who counts with whom where owners hold different
attributes, `determined` finds rules in tables, `swaps` and `sample` make the records. `schedule` puts the
steps into their order. All of it is a function of public numbers: the plan and the noisy answers. Only
`owner_node.synthesis` counts records and draws noise.
"""
