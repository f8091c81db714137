"""What a release of one's own data would be worth and what it would reveal, before anything is spent.

    scales → measures, models                        what masked records are worth
    links, structure → attacks; inference            what they reveal, each beside its baseline
    cells → draws → assessment → sweep → advice      many settings of epsilon, k and mechanism at once
    results                                          the document that all of it ends in

Nothing here touches a ledger, a session or a network, and every draw is made for this alone. The results
depend on original data: they are for the owner and nobody else. scikit-learn comes with the extra `explore`.
"""
