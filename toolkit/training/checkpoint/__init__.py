"""Checkpoints: write, verify, replicate and read them, and decide when to save.

Codecs (torch, DCP, DeepSpeed) and tiers (folder, S3) belong here, each behind one protocol. The
names of checkpoint folders are in `run_folder`: lower rooms need them without the rest.
"""
