"""Scripts for developers of fourward."""
