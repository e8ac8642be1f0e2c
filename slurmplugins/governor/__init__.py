"""The burst governor: which waiting job may go to the cloud, and why the others stay.

A pass reads the queue, decides, and changes jobs' lists of partitions. It asks Slurm alone: of EC2
it knows what reconcile wrote last. So no answer of AWS can delay it, or a job of the racks.

`decide`, `spending` and `plan` do no input or output. `run` reads, acts and remembers.
"""
