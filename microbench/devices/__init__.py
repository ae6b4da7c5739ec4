"""Devices: a modelled GPU, or CUDA through torch."""
