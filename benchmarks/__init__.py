"""Measures Mooring against other gateways and against how little a relay can cost.

Run by hand with ``python -m benchmarks`` (or ``make bench``) and by ``tests/test_performance_guard.py``; how to read
the figures is in ``docs/performance.md``. The product never imports it.
"""
