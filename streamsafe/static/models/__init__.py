"""What library calls do, as data: rows in a closed vocabulary, read from the TOML files beside."""
