"""The model of order: operations, edge rules, engines, hazards. Imports nothing of ours and nothing heavy."""
