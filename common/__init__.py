"""What owner node and aggregator share: the words of the protocol, its checks, and its wire form."""

__version__ = "0.2.0.dev0"
