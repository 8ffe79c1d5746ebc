"""Planning: the capacity contract, the exact optimiser and the classical distributions."""
