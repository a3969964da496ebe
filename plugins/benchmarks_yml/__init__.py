"""A benchmarks.yml as cases: ``pytest path/to/benchmarks.yml`` (docs/specs.md)."""
