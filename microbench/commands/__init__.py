"""The commands of `microbench`, one a file; `microbench.cli` finds them by name."""
