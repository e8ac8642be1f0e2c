"""Checks a batch script and hands it to sbatch, with nothing hidden.

Belongs here: the plan of the sbatch call, its checks, and the calls of Slurm.
Does not: the rules over the script's text (`toolkit.lint`).
"""
