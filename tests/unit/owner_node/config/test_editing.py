"""One setting is changed in the file, and everything else stays to the letter."""

import tomllib
from decimal import Decimal

import pytest

from common.errors import ConfigurationError
from owner_node.config.editing import set_rank_noise

TEXT = """# first
[owner]
id = "north"

[[dataset]]
name = "one"  # kept
source = "one.csv"

[dataset.csv]
delimiter = ";"

[[dataset]]
name = "two"
rank_noise = 0.05
source = "two.csv"
[dataset.attributes.age]
type = "integer"
"""


@pytest.mark.parametrize(
    ("dataset", "before", "after"),
    [
        ("one", '[[dataset]]\nname = "one"', '[[dataset]]\nrank_noise = "0.2"\nname = "one"'),
        ("two", "rank_noise = 0.05\n", 'rank_noise = "0.2"\n'),
    ],
)
def test_a_line_is_added_or_replaced(tmp_path, dataset, before, after):
    """In the data set that is meant, and nowhere else."""
    path = tmp_path / "owner.toml"
    path.write_text(TEXT)
    path.chmod(0o640)
    set_rank_noise(path, dataset, Decimal("0.2"))
    assert path.read_text() == TEXT.replace(before, after, 1)
    assert path.stat().st_mode & 0o777 == 0o640
    tomllib.loads(path.read_text())


@pytest.mark.parametrize(
    "text",
    [
        'note = """\n[[dataset]]\n"""\n' + TEXT,
        'dataset = [{ name = "one" }]\n',
    ],
)
def test_files_that_are_written_otherwise_stay_as_they_are(tmp_path, text):
    """Where the change would not mean what was meant, the hint is the line."""
    path = tmp_path / "owner.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="could not be changed") as caught:
        set_rank_noise(path, "one", Decimal("0.2"))
    assert 'rank_noise = "0.2"' in (caught.value.hint or "")
    assert path.read_text() == text
