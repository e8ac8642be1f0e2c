"""The record of a run: its recorder on rank 0, and reports made of it (goodput, audit, summary).

The formats of the files are in `run_folder`; the tracking server's client is in `tracking`.
"""
