"""Whether the tests would notice: mutants of the core, by a tool and by hand."""
