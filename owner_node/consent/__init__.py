"""May a plan be accepted? By the owner's rules, by what the data forecast, and by a person."""
