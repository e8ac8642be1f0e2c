"""The operating system: clock, files, other programs, background processes, threads, logs.

Here: code that any program on this host could use.
Not here: code that speaks to Slurm or EC2.
"""
