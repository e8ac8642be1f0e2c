"""Runs inside other people's training loops: Hugging Face's Trainer, Lightning's Trainer.

Each adapter is a module of its own that needs its package, and no other room imports it.
`data_loader` and `trainer_state` serve both adapters. A codec for another library's state belongs
in `checkpoint`.
"""
