"""CUDA without a GPU. Knows no sanitizer."""
