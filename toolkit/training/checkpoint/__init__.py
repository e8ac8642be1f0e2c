"""Checkpoints: write, verify, replicate and read them back; when to save.

Codecs (torch, DCP, DeepSpeed) and tiers (folder, S3) are here, each behind one protocol.
The names of checkpoint folders are in `run_folder`: rooms below need them without the rest.
"""
