"""Adapter to Slurm: scontrol, squeue, their JSON, the resume file, requests to nodes' agents.

Here: how Slurm is asked and told. Not here: what to ask or tell it.
"""
