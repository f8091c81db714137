"""Measures the utility and the disclosure risk of a release of your own data, before any budget is spent.

    models                               utility of masked records for statistical models
    assessment                           one setting, with all measures and attacks of `owner_node.risk`
    sweep → advice                       many settings
    results → page                       the resulting document, and its page

Nothing here touches a ledger, a session or a network, and every draw is made for exploration alone. The
results depend on original data: they are for the owner only. scikit-learn comes with the extra `explore`.
"""
