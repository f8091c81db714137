"""Masking: values in, masked values out. No module here opens a file, a socket or a log.

    arrays → order → clusters → noise → lists → quantiles → mechanisms → rank_noise → engine → mask

Masking has two products (docs/guarantee.md, "Definitions"): the rank-ordered list of released values, and the
assignment of records to its places. A mechanism makes the first from statistics of clusters or counts of
values, `rank_noise` makes the second. `engine` holds the records, and `mask` combines the two. numpy is
imported at the top of these modules, so a daemon imports them only when it masks.
"""
