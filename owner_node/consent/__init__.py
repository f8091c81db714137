"""Consent: the rules by which a plan, or an owner's own work, is accepted or refused."""
