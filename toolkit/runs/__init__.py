"""MLflow's runs and their folders, for people's commands.

Belongs here: asking the head node for runs and sweeps, comparing and printing them.
Does not: recording runs (`toolkit.training`) and the program on the head
(slurmplugins).
"""
