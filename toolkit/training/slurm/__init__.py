"""A job's own view of Slurm: scontrol and sacct as its user, ids, comments, sbatch options.

The head's view of Slurm is in `slurmplugins.slurm`, which no job can import.
"""
