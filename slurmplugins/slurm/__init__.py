"""The adapter to Slurm: scontrol, squeue, their JSON, the resume file, requests to node agents.

Here: reading from slurmctld, changing nodes and jobs, parsing Slurm's formats.
Not here: decisions about nodes and jobs.
"""
