"""`microbench gpu-check`: everything this suite claims about one GPU, measured in minutes and written down.

Each stage runs in a process of its own, so that a lost device, a full memory or a hang ends that stage and no more.
"""
