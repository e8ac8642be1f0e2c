"""Jobs of racks that may go to the cloud: today's decisions, and a rehearsal over past queues.

Decisions are made by `slurmplugins.governor`, here as on the head. This room asks the head for
facts, replays past jobs on a model of the racks, and draws the result.
"""
