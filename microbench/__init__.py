"""Microbenchmarks of LLM scheduler designs: does overlap pay for this model on this GPU, and why?

Importing this imports neither torch, cupy nor matplotlib.
"""

__version__ = "0.1.0"
