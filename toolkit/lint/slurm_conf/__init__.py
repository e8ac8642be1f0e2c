"""Rules over a slurm.conf: the ways in which cloud nodes lose jobs, nodes or money.

Belongs here: `parser` reads the file, `rules_*` are the rules, `check` runs them.
Does not: the table of options and versions (`toolkit.render.options`).
"""
