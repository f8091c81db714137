"""Masking: values in, masked values out. No module here opens a file, a socket or a log.

    ranking → clusters → centroids, sensitivity → calibration → noise → released → mask

The rank-ordered list of released values and the assignment of records to its entries are two products
(MECHANISMS §1): a mechanism makes the first from sorted values, `ranking` makes the second, and `mask` puts
them together. numpy is imported at the top of these modules, so a daemon imports them when it masks.
"""
