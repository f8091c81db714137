"""Taxonomies of categories: from a hierarchy file to a public total order and exact distances.

Everything here depends on the hierarchy and the declared order of the categories, never on records. So the
order is public, and all owners of a group share it. numpy is not used, since the configuration reads
hierarchies long before anything is masked.

References:
    Sánchez et al. 2016, §3.4 (semantic distance, marginality, order), equations 3 and 4.
"""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key
from itertools import pairwise
from typing import TypeAlias

from common.canonical import document_digest
from common.words.numbers import first_text

Path: TypeAlias = tuple[str, ...]
"""Labels from the root down to a category; it identifies a node of the tree."""
_MOST_LABELS = 8
"""Most labels that an error lists."""
_Profile: TypeAlias = tuple[tuple[Fraction, int], ...]
"""Number of categories by distance, without the logarithm; sorted."""
MOST_PROBLEMS = 20


class MalformedTaxonomy(ValueError):
    """A hierarchy is no taxonomy of the categories."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
        """All its problems, one text each."""


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """A tree with the categories of an attribute."""

    paths: tuple[Path, ...]
    """The path of every category, by declared index."""

    @property
    def n_categories(self) -> int:
        """V, the number of categories."""
        return len(self.paths)

    @property
    def digest(self) -> str:
        """SHA-256 of the tree, independent of the order of the categories; owners compare it."""
        return document_digest({"taxonomy": sorted(map(list, self.paths))})

    def with_category(self, label: str) -> "Taxonomy":
        """Return the tree with one more category, the last, right below the root."""
        return Taxonomy((*self.paths, (self.paths[0][0], label)))

    def difference(self, first: int, second: int) -> Fraction:
        """Return the share of nodes that two categories, by declared index, do not have in common.

        The nodes of a category are itself and its ancestors. The semantic distance is log2(1 + this share),
        which is monotone, so comparing shares compares distances.
        """
        one, other = self.paths[first], self.paths[second]
        shared = sum(a == b for a, b in zip(_nodes(one), _nodes(other), strict=False))
        return _difference(len(one), len(other), shared)

    def order(self) -> tuple[int, ...]:
        """Return the declared indices by distance to the most marginal category, nearest first.

        Ties are in declared order. The most marginal category is the one with the largest sum of distances
        to all categories, each counted once.
        """
        centre = self.most_marginal()
        return tuple(sorted(range(self.n_categories), key=lambda index: self.difference(centre, index)))

    def most_marginal(self) -> int:
        """Return the declared index of the category farthest from all others, the first of several.

        A sum of logarithms is the logarithm of a product, so the products of the 1 + differences are compared
        as exact fractions. Categories that see the same distances tie without being computed twice.
        """
        profiles = self._profiles()
        first_with = {profile: index for index, profile in reversed(list(enumerate(profiles)))}
        products = {index: _product(profile) for profile, index in first_with.items()}

        def compare(one: int, other: int) -> int:
            (above, below), (over, under) = products[one], products[other]
            left, right = above * under, over * below
            # If products are equal, the first category in declared order counts as larger.
            return (left > right) - (left < right) or other - one

        return max(products, key=cmp_to_key(compare))

    def _profiles(self) -> list[_Profile]:
        """Count, for every category, how many categories lie at which difference from it.

        A category shares j nodes with those below its j-th ancestor but not below its next one.
        """
        below: defaultdict[Path, Counter[int]] = defaultdict(Counter)
        for path in self.paths:
            for node in _nodes(path):
                below[node][len(path)] += 1
        profiles = []
        for path in self.paths:
            counts: Counter[Fraction] = Counter()
            nodes = _nodes(path)
            for shared, (node, deeper) in enumerate(pairwise([*nodes, ()]), start=1):
                nearer: Mapping[int, int] = below[deeper] if deeper else {}
                for depth, count in below[node].items():
                    if rest := count - nearer.get(depth, 0):
                        counts[_difference(len(path), depth, shared)] += rest
            profiles.append(tuple(sorted(counts.items())))
        return profiles


def read_hierarchy(text: str) -> dict[str, Path]:
    """Read a hierarchy in the form of ARX and sdcMicro.

    Args:
        text: One category per line, then its ancestors up to the root, separated by `;`. Labels that are
            repeated in a row count once.

    Returns:
        The path of every category, in the order of the lines.

    Raises:
        MalformedTaxonomy: With all problems, by line.
    """
    problems: list[str] = []
    paths: dict[str, Path] = {}
    for number, cells in _rows(text):
        if not all(cell.strip() for cell in cells):
            what = "the category is missing" if not cells[0].strip() else "an ancestor is empty"
            problems.append(f"line {number}: {what}")
            continue
        labels = [cell for cell, before in zip(cells, [None, *cells], strict=False) if cell != before]
        if len(set(labels)) != len(labels):
            problems.append(f"line {number}: a cycle, a label is above itself")
        elif cells[0] in paths:
            problems.append(f"line {number}: category {cells[0]!r} is in an earlier line too")
        else:
            paths[cells[0]] = tuple(reversed(labels))
    problems += _tree_problems(paths)
    if problems:
        more = [f"and {len(problems) - MOST_PROBLEMS} problems more"] if len(problems) > MOST_PROBLEMS else []
        raise MalformedTaxonomy([*problems[:MOST_PROBLEMS], *more])
    return paths


def taxonomy_of(hierarchy: Mapping[str, Path], categories: Sequence[str]) -> Taxonomy:
    """Return the taxonomy of declared categories.

    Raises:
        MalformedTaxonomy: If hierarchy and declaration have different categories.
    """
    declared = set(categories)
    lacking = [label for label in categories if label not in hierarchy]
    more = [label for label in hierarchy if label not in declared]
    problems = []
    if lacking:
        problems.append(f"declared, but not in the hierarchy: {_list_labels(lacking)}")
    if more:
        problems.append(f"in the hierarchy, but not declared as categories: {_list_labels(more)}")
    if problems:
        raise MalformedTaxonomy(problems)
    return Taxonomy(tuple(hierarchy[label] for label in categories))


def _rows(text: str) -> list[tuple[int, list[str]]]:
    reader = csv.reader(text.removeprefix("\ufeff").splitlines(), delimiter=";", strict=True)
    try:
        return [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error:
        raise MalformedTaxonomy([f"line {reader.line_num}: quotes that do not close"]) from None


def _tree_problems(paths: Mapping[str, Path]) -> list[str]:
    """Return the problems that no single line shows."""
    if not paths:
        return ["it has no line with a category"]
    roots = list(dict.fromkeys(path[0] for path in paths.values()))
    problems = []
    if len(roots) > 1:
        problems.append(f"{len(roots)} roots, {_list_labels(roots)}: all lines end with the same label")
    parents: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths.values():
        for parent, child in pairwise(path):
            parents[child].add(parent)
    if looping := _in_cycles(parents):
        problems.append(f"a cycle: {_list_labels(looping)} are above each other in different lines")
    return problems


def _in_cycles(parents: Mapping[str, set[str]]) -> list[str]:
    """Return the labels that remain after repeatedly removing those without parent or without child."""
    children: defaultdict[str, set[str]] = defaultdict(set)
    for child, above in parents.items():
        for parent in above:
            children[parent].add(child)
    left, n_before = set(parents), -1
    while len(left) != n_before:
        n_before = len(left)
        left = {label for label in left if parents[label] & left and children[label] & left}
    return sorted(left)


def _nodes(path: Path) -> list[Path]:
    """Return the nodes on a path, the root first: T, the ancestors and the category itself."""
    return [path[: depth + 1] for depth in range(len(path))]


def _difference(depth: int, other_depth: int, shared: int) -> Fraction:
    union = depth + other_depth - shared
    return Fraction(union - shared, union)


def _product(profile: _Profile) -> tuple[int, int]:
    """Return the product of all 1 + differences, as numerator and denominator, not reduced."""
    above = below = 1
    for difference, count in profile:
        above *= (difference.denominator + difference.numerator) ** count
        below *= difference.denominator**count
    return above, below


def _list_labels(labels: Iterable[str]) -> str:
    return first_text(map(repr, labels), _MOST_LABELS)
