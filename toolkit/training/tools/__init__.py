"""Programs around a run: allocation check, idle notebooks, OCI bundles.

No other room imports them.
"""
