"""The demonstration: from nothing to a model trained through a spot interruption."""
