"""Hosts: real threads under the real GIL, or tasks on a computed clock."""
