"""Choosing K and L_w: fits over a grid, compared."""

from .select import Selection, select_model

__all__ = ["Selection", "select_model"]
