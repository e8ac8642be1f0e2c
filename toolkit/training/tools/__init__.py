"""Programs beside a run: allocation check, idle notebooks, OCI bundles.

A program that needs no `Run` belongs here. No other room imports these modules; a program that
judges or reports a run belongs in that subject's room.
"""
