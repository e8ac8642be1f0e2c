"""Work that the ranks of a run do together.

Process groups, the agreement at each step and the report of stragglers belong here. Collectives
that belong to saving are in `checkpoint.collective`.
"""
