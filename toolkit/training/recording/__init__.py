"""The record of a run: its recorder on rank 0, and reports made of it (goodput, audit, summary).

Code that decides what is recorded, or that reads a run's record, belongs here. The formats of the
files are in `run_folder`; the tracking server's client is in `tracking`.
"""
