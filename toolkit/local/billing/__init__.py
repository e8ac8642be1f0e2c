"""The local cloud's meter and its invoice, by AWS's rules.

Belongs here: what an instance, a volume or a file system did, and what AWS would bill for it.
Does not: anything of `toolkit.accounting`, whose sums are held against these.
"""
