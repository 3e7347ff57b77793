"""PyTorch programs under the sanitizer."""
