"""Runs inside other people's training loops: Hugging Face's Trainer, Lightning's Trainer.

Each adapter is a module of its own that needs its package; nothing else imports either.
"""
