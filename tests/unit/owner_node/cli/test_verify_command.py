"""`owner-node verify` on a published release, without a daemon."""

import tempfile

import pytest

from common.errors import UsageError
from owner_node.cli.releases import verify
from owner_node.state.database import OwnerDatabase
from tests.fakes.owner_folder import make_owner_folder
from tests.fakes.published import make_release


def test_the_configured_scratch_is_used(tmp_path, monkeypatch):
    """The release is verified where the system's folder for temporary files is not there, then judged."""
    made = make_release(tmp_path, n_records=30)
    config = make_owner_folder(tmp_path) / "owner.toml"
    OwnerDatabase(tmp_path / "state").close()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="north took no part"):
        verify(made.folder, made.ca_file(tmp_path), config_file=config)
