"""AWS's bill against our report, and what became of each day.

Belongs here: reading Cost and Usage Reports, the match by instance and UTC day, and the
record of days that are reconciled or final.
Does not: the report itself (`toolkit.accounting`) and prices (`toolkit.prices`).

`reader` turns export files into bill lines. `classes` says what each line is, and `tally`
adds them up. `match` compares them with the estimates, and `record` keeps the result.
"""
