"""Simulators that make training sets."""
