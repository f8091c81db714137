"""The policy as people see it: what owner.toml sets, apart from what holds by default."""

from dataclasses import asdict

from owner_node import config
from owner_node.config import PolicyConfig
from owner_node.views.data import policy_lines, policy_parts
from tests.fakes.owner_folder import make_owner_folder


def test_what_was_set_is_shown_apart(tmp_path) -> None:
    """Every key is in one of both parts; a default that is written down was set, too."""
    folder = make_owner_folder(tmp_path, policy='approval = "auto"\nmin_k = 7')
    owner = config.load(folder / "owner.toml")
    written, usual = policy_parts(owner)
    assert dict(written) == {"min_k": "7", "approval": "auto"}
    assert {**dict(written), **dict(usual)} == dict(policy_lines(owner))
    assert dict(usual)["known"] == "all attributes"
    assert len(usual) == len(asdict(PolicyConfig())) - 2
