"""Datasets made of datasets: built once, named by inputs and code.

Belongs here: the key of a build, running it, its lineage.
Does not: how the result is stored (`store`) and cached (`cache`).
"""
