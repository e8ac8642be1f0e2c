"""The local cloud: the AWS API on this machine, with a Linux machine behind each instance.

Belongs here: the daemon and its endpoint, AWS's behaviour (`aws`), the machines
(`machines`).
Does not: anything that runs against real AWS.
"""
