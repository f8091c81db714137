"""Measures what is left of masked data and what an intruder finds in them, on draws made for nothing else.

    measures → draws → utility              how far masked records are from the original ones
    links, likelihood → attacks             disclosure risk, each attack with its baseline
    trials                                  attacks on several draws, by intruders who know more or less
    appraisal                               all of this for one plan, with its forecast and distortions

Nothing here touches a ledger, a session or a network. The results depend on original data: they are for the
owner only.
"""
