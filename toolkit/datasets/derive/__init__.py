"""Datasets made of datasets: build once, name by inputs and code, trace their lineage."""
