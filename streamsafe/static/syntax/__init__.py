"""Source files to the intermediate representation: index, lowering, control flow."""
