"""What a release of one's own data would be worth and what it would reveal, before anything is spent.

    scales → measures, models                         what masked records are worth
    rows → links, likelihood, structure, inference → attacks    what they reveal, each beside its baseline
    lists → draws → utility → assessment              one setting looked at from all sides
    cells → sweep → advice, distributions             many settings at once;  preview: one plan that waits
    results → page                                    the document that all of it ends in, and its page

Nothing here touches a ledger, a session or a network, and every draw is made for this alone. The results
depend on original data: they are for the owner and nobody else. scikit-learn comes with the extra `explore`.
"""
