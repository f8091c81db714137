"""The permit that a release is made under, and the conditions of use that it states, in codes of the DUO.

Data access bodies grant permits by an id of their own. The Data Use Ontology (GA4GH) names what data may be
used for; its codes are a closed set here.
"""

from collections.abc import Iterable, Mapping

LONGEST_PERMIT = 120
"""Most characters of the id of a permit."""
ONTOLOGY = "http://purl.obolibrary.org/obo/"
"""Beginning of the IRI of a term, which ends in its code with an underscore."""
DUO: Mapping[str, str] = {
    "DUO:0000004": "no restriction",
    "DUO:0000006": "health, medical or biomedical research",
    "DUO:0000007": "disease-specific research",
    "DUO:0000011": "research on population origins or ancestry only",
    "DUO:0000012": "research-specific restrictions",
    "DUO:0000015": "no general methods research",
    "DUO:0000016": "genetic studies only",
    "DUO:0000018": "not-for-profit, non-commercial use only",
    "DUO:0000019": "publication required",
    "DUO:0000020": "collaboration required",
    "DUO:0000021": "ethics approval required",
    "DUO:0000022": "geographical restriction",
    "DUO:0000024": "publication moratorium",
    "DUO:0000025": "time limit on use",
    "DUO:0000026": "user-specific restriction",
    "DUO:0000027": "project-specific restriction",
    "DUO:0000028": "institution-specific restriction",
    "DUO:0000029": "return of results to the resource",
    "DUO:0000042": "general research use",
    "DUO:0000043": "clinical care use",
    "DUO:0000044": "research on population origins or ancestry prohibited",
    "DUO:0000045": "not-for-profit organisation use only",
    "DUO:0000046": "non-commercial use only",
}
"""Labels of the terms by code."""


def duo_code(text: str) -> str:
    """Return the code of a term, which is written with or without the ontology's prefix.

    Raises:
        ValueError: If there is no such term.
    """
    code = f"DUO:{text.strip().upper().removeprefix('DUO:').removeprefix('DUO_')}"
    if code not in DUO:
        raise ValueError(f"{text!r} is not a code of the Data Use Ontology")
    return code


def condition_texts(codes: Iterable[str]) -> list[str]:
    """Return conditions as people read them: the label and the code of each."""
    return [f"{DUO[code]} ({code})" for code in codes]
