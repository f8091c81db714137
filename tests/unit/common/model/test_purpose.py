"""What a release is for is text of another party: it draws nothing, and cannot pass for another line."""

import pytest
from rich.cells import cell_len

from common.cli.brief import WIDTH, clip
from common.cli.sections import Facts, align_facts
from common.model.plan import LONGEST_PURPOSE, is_purpose

WORDS = (
    "Study of readmissions, 2024–2025 (approved: 17/B)",
    "Étude de la réadmission à l'hôpital",
    "再入院の研究",
    "अस्पताल में पुनः भर्ती",
    "costs < 5 €, a + b = c; 10 % of all",
    "x" * LONGEST_PURPOSE,
    "",
)
DRAWN = {
    "blank Braille": "a\u2800\u2800charge 0.01",
    "a filler letter": "a\u3164\u3164charge",
    "a zero-width space": "a\u200bb",
    "text from right to left": "a\u202eb",
    "box drawing": "a │ b",
    "blocks": "█ 0.01",
    "an emoji": "study 📈",
    "a variation selector": "a\ufe0f",
    "a row of dashes": "a ———— b",
    "a row of underscores": "a ____ b",
    "a pile of marks": "a" + "\u0301" * 4,
    "two spaces": "a  b",
    "a no-break space": "a\u00a0b",
    "a line break": "a\nb",
    "a space at the end": "a ",
    "too long": "x" * (LONGEST_PURPOSE + 1),
}


@pytest.mark.parametrize("text", WORDS)
def test_words_of_any_language(text: str) -> None:
    """Letters of every script, punctuation, sums and money."""
    assert is_purpose(text)


@pytest.mark.parametrize("text", DRAWN.values(), ids=DRAWN)
def test_what_draws_or_hides(text: str) -> None:
    """Nothing invisible, no drawing, no second line."""
    assert not is_purpose(text)


def test_a_value_stays_in_its_column() -> None:
    """However a purpose is worded, none of it begins where a field does."""
    purpose = "to find out what readmission costs " * 4 + "charge 0.01 approved by the board"
    lines = list(align_facts(Facts({"purpose": purpose.strip(), "charge": "7", "note": ""}).known, 60))
    assert [line.split()[0] for line in lines if line[2] != " "] == ["purpose", "charge"]
    assert all(len(line) <= 60 for line in lines)
    assert " ".join(" ".join(lines[:-1]).split()) == f"purpose {purpose.strip()}"


@pytest.mark.parametrize("before", ["治", "A", "\uff21", "a\u0301", "治 "])
def test_no_line_is_broken_by_the_terminal(before: str) -> None:
    """Wide characters take two columns: what a terminal breaks begins where a field does."""
    purpose = (before * 40).strip() + ".charge 0.01 from budget 'cohort'"
    assert is_purpose(purpose)
    for lines in (clip("purpose", purpose).whole, [*align_facts({"purpose": purpose}, WIDTH)]):
        assert max(map(cell_len, lines)) <= WIDTH
        assert all(line.startswith("    ") for line in lines[1:])
        said = "".join("".join(lines).split()).removeprefix("purpose").removeprefix(":")
        assert said == "".join(purpose.split())
    for most in (1, 2):
        assert max(map(cell_len, clip("purpose", purpose).within(most))) <= WIDTH


def test_a_terminal_of_a_few_columns() -> None:
    """Whatever its size: every line has a character of the text, and all of it is shown."""
    lines = list(align_facts({"purpose": "治療 of readmissions"}, 4))
    assert "".join("".join(lines).split()) == "purpose治療ofreadmissions"
