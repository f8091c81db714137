"""Taxonomies of Adult's occupations and countries, of our own: the paper's mapping to WordNet is not at hand.

Occupations are grouped as the census groups them, countries by region and continent. Categories are in the
order of the data set's documentation.

References:
    Sánchez et al. 2016, §4.1.
"""

from owner_node.values.taxonomy import Taxonomy

OCCUPATIONS = {
    "white collar": {
        "managers and professionals": "Exec-managerial Prof-specialty",
        "technical and office": "Tech-support Adm-clerical",
        "trade": "Sales",
    },
    "blue collar": {
        "production": "Craft-repair Machine-op-inspct",
        "transport and handling": "Transport-moving Handlers-cleaners",
        "agriculture": "Farming-fishing",
    },
    "service": {
        "personal": "Other-service Priv-house-serv",
        "protection": "Protective-serv Armed-Forces",
    },
}
COUNTRIES = {
    "America": {
        "North America": "United-States Canada Outlying-US(Guam-USVI-etc)",
        "Central America": "Mexico Honduras Guatemala Nicaragua El-Salvador",
        "Caribbean": "Puerto-Rico Cuba Jamaica Dominican-Republic Haiti Trinadad&Tobago",
        "South America": "Ecuador Columbia Peru",
    },
    "Europe": {
        "Western Europe": "England Germany Ireland France Scotland Holand-Netherlands",
        "Southern Europe": "Greece Italy Portugal Yugoslavia",
        "Eastern Europe": "Poland Hungary",
    },
    "Asia": {
        "East Asia": "Japan China Taiwan Hong South",
        "South-East Asia": "Cambodia Philippines Vietnam Laos Thailand",
        "West and South Asia": "India Iran",
    },
}


def taxonomy(tree: dict[str, dict[str, str]], categories: tuple[str, ...]) -> Taxonomy:
    """Return the taxonomy of categories, by their declared index.

    Args:
        tree: Groups of groups of categories.
        categories: The categories, each of which has one place in the tree.
    """
    paths = {
        label: ("all", upper, lower, label)
        for upper, groups in tree.items()
        for lower, labels in groups.items()
        for label in labels.split()
    }
    return Taxonomy(tuple(paths[label] for label in categories))
