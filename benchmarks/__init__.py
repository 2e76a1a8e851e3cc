"""Speed benchmarks, and named graphs shared with the tests."""
