"""The demonstration: from nothing to a model trained through a spot interruption.

Belongs here: the phases of `make demo`, and how they are shown.
Does not: anything that other code calls.
"""
