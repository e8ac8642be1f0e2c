"""The AWS SDKs of the supported systems, and the tier that runs slurmplugins on the oldest."""
