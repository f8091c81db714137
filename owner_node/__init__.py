"""An organisation's own daemon and commands: the only programs that read original data."""
