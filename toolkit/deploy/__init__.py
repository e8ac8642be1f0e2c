"""From cluster.yaml to a running cluster and back: images, stack, bundle, head node."""
