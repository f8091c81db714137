"""The configuration of trials: an owner's own, without people and without limits on real data."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from owner_node.config import PolicyConfig
from owner_node.release.trial import trial_config
from tests.fakes.offering import Offering


def test_a_trial_needs_no_person_and_counts_no_linking(tmp_path: Path) -> None:
    """Limits on data go with approval by a person, so a trial has neither; every other limit stays."""
    offering = Offering(tmp_path)
    offering.records.db.close()
    limited = PolicyConfig(
        approval="manual",
        manual_above_epsilon=Decimal(1),
        max_attempts=1,
        min_k=7,
        max_reidentified=Decimal("0.1"),
        max_unchanged_share=Decimal("0.1"),
        max_unchanged_record_share=Decimal("0.1"),
        max_zero_noise_share=Decimal("0.1"),
    )
    assert len(limited.limits_on_data) == 4
    found = trial_config(replace(offering.config, policy=limited)).policy
    assert (found.approval, found.manual_above_epsilon, dict(found.limits_on_data)) == ("auto", None, {})
    assert found.max_attempts > 10**6
    assert found.min_k == 7
