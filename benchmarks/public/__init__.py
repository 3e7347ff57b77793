"""Public programs that train or run a small model with random weights; each returns its losses."""

from . import graphs, loaders, models, offloading, ranks
from .kit import PROGRAMS, Values

__all__ = ["PROGRAMS", "Values", "graphs", "loaders", "models", "offloading", "ranks"]
