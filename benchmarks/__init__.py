"""Speed, measured in the open; named cases shared with the tests."""
