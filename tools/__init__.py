"""Programs for those who work on fourward."""
