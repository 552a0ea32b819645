"""Benchmarks: programs of their own, for anybody who wants to know how fast this is here."""
