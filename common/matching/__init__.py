"""Linking by match keys: how token lists are laid out, linked pass by pass, and how good the links are.

Both sides use it: the aggregator on tokens of a release, an owner on two files of its own (`link-check`).
"""
