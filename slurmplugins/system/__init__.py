"""The machine under us: clock, files, processes, threads, logs.

Here: what would be the same in any program. Not here: anything of Slurm or EC2.
"""
