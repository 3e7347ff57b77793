"""Hazards as terminal text and JSON: one pure function a module."""
