"""Machines for the local cloud: drivers, images, networks, and checks of the host.

Belongs here: everything that touches the host's processes, mounts, network and disks.
Does not: AWS and moto (`local.aws`).
"""
