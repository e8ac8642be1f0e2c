"""Tests of a tree with Slurm 25.11 are collected where one is named."""

from tests.contract.pyslurm import tree

collect_ignore = [] if tree.FOLDER else ["test_topology.py"]
