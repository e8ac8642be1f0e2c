"""Reads a batch script for what will lose work when its machines go."""
