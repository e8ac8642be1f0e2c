"""A job's own view of Slurm, as its user.

scontrol and sacct calls, job ids, job comments and sbatch options belong here. The head's view of
Slurm is in `slurmplugins.slurm`, which no job can import.
"""
