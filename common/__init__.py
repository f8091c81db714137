"""What owner node and aggregator share: the words of the protocol, its checks, and its wire form."""

from common.processor import choose_sorting

__version__ = "0.2.0.dev0"

# Everything of the project imports this package first, and numpy later.
choose_sorting()
