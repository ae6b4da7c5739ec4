"""Holds modelled numbers against measurements that others published."""
