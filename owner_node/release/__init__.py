"""An owner's part in a release: describe, consent, link, mask, seal, send, each exactly once."""
