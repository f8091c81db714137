"""Measures the utility and the disclosure risk of a release of one's own data, before any budget is spent.

    measures, models                     utility of masked records
    links, likelihood → attacks          disclosure risk, each attack with its baseline
    draws → utility → assessment         one setting, with all measures and attacks
    sweep → advice                       many settings;  preview: one plan that waits for a decision
    results → page                       the resulting document, and its page

Nothing here touches a ledger, a session or a network, and every draw is made for exploration alone. The
results depend on original data: they are for the owner only. scikit-learn comes with the extra `explore`.
"""
