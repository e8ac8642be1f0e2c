"""Programs beside a run: allocation check, idle notebooks, OCI bundles.

A program that needs no `Run` belongs here, and no other room imports it. A program that judges or
reports a run belongs in `requeue`, `recording` or `reproduce`.
"""
