"""Cloud nodes in a Slurm that somebody else runs: `kind: join` in cluster.yaml.

Belongs here: the facts of a site, our include files, what fights with them, and how they come and
go. Does not: the AWS side that every cluster has (`toolkit.deploy`), and what slurmctld calls
(`slurmplugins`).
"""
