"""The operators' web pages: releases under way, owners, certificates, starting a release.

Pages ask the running daemon what the command line asks it, over the same socket, and go around none of its
checks. People whose link is read-only change nothing.
"""
