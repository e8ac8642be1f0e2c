"""Mutants of the core against the tests.

A tool makes most of them, and some are made by hand.
"""
