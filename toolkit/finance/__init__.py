"""Files for finance: FOCUS, the HTML report, the savings ledger.

Belongs here: numbers that are made of a finished report, and their files.
Does not: charges and their prices (`toolkit.accounting`, `toolkit.prices`).

Every number is made of the report's charges. So the sums are the report's, to the
micro-dollar, and an unknown amount is in none of them.
"""
