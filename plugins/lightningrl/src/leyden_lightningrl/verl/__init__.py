"""Everything that imports verl, Ray or torch; nothing outside this package (and `models`) does."""
