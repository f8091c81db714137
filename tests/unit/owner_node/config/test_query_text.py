"""What is taken for one SELECT, and what is refused while the configuration is read."""

import pytest

from owner_node.sources.options import one_select

GOOD = (
    "select a from t",
    "  SELECT a\nfrom t\n",
    "(select a from t)",
    "with x as (select 1 as a) select a from x",
    "values (1)",
    "table t",
    "select ';' as a, \"b;c\", $$;)$$ as d, $x$;$$)$x$ as e from t -- ; )",
    "/* ; */ select a /* ( */ from t",
    "select 'it''s; (' as a",
    "select `a;b` from t",
)


@pytest.mark.parametrize("query", GOOD)
def test_one_select_stays_as_it_is(query):
    """Semicolons and parentheses in quotes and comments belong to the query."""
    assert one_select(query) == query


@pytest.mark.parametrize("query", GOOD)
def test_the_semicolon_at_the_end_goes(query):
    """People end statements with a semicolon; a comment may follow it."""
    assert one_select(f"{query}\n; ") == f"{query}\n "
    assert one_select(f"{query}\n; -- done;") == f"{query}\n -- done;"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "not an empty text"),
        (" ; ", "not an empty text"),
        ("-- select a", "not an empty text"),
        ("delete from t", "not DELETE"),
        ("update t set a = 1 returning a", "not UPDATE"),
        ("create table x as select 1", "not CREATE"),
        ("explain select a from t", "not EXPLAIN"),
        ("select a from t; delete from t", "not several statements"),
        ("select a from t;;", "not several statements"),
        ("select a from t) x; drop table t; --", "not several statements"),
        ("select a from t) x", "parentheses"),
        ("select (a from t", "parentheses"),
        ("select a) from (t", "parentheses"),
        ("select 'a from t", "never closed"),
        ('select "a from t', "never closed"),
        ("select a /* from t", "never closed"),
    ],
)
def test_what_is_not_one_select_is_refused_with_the_reason(query, problem):
    """A mistake is found when the file is read, not when a release waits for it."""
    with pytest.raises(ValueError, match=problem):
        one_select(query)
