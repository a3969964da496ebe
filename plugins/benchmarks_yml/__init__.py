"""Runs a benchmarks.yml: ``pytest path/to/benchmarks.yml`` (docs/how-to/benchmarks-yml.md)."""
