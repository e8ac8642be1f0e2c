"""Two linters: of a batch script, and of a slurm.conf. Both give `Finding`s.

Belongs here: rules, and the reading of the linted text.
Does not: the slurm.conf that we write ourselves (`toolkit.render`).
"""
