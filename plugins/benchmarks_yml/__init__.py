"""A benchmarks.yml as cases: ``pytest path/to/benchmarks.yml`` (docs/how-to/benchmarks-yml.md)."""
