"""Machines for the local cloud: drivers, images, networks, and what the host must have."""
