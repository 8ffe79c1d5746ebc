"""Planning: the capacity contract, the exact optimiser and the classical distributions."""

from castgym.tools.planning.classical import CLASSICAL_METHODS, classical_distributions
from castgym.tools.planning.contract import CapacityContract, Grade

__all__ = ["CLASSICAL_METHODS", "CapacityContract", "Grade", "classical_distributions"]
