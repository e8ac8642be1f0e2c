"""Accounting periods, and what is written of them: statements and an accounting journal.

Belongs here: the states of a month, its doubtful rows, its copy once it is closed, corrections,
statements. Does not: charges (`toolkit.accounting`), closed days (`toolkit.usage`), AWS's bill
(`toolkit.bill`).
"""
