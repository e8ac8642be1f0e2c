"""A job's cost before it starts: the quote, the fitting GPU, the cheapest start.

Belongs here: what a batch script asks for, its price on each offering, and what earlier jobs tell.
Does not: the line that sbatch prints (`slurmplugins.head.price_file` and its Lua script).
"""
