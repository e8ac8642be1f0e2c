"""The people's side of a Slurm cluster on EC2: its commands, and training on it.

Belongs here: rooms, one subject each, and modules that most of them need (`errors`,
`output`).
Does not: programs of the head node and the compute nodes (`slurmplugins`).
"""
