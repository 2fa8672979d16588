"""Maps in the browser: an interactive page on this machine, drawn by bokeh (extra ``view``)."""

try:
    import bokeh as _bokeh  # noqa: F401
except ImportError as error:
    raise ImportError("the viewer needs bokeh; install it with: pip install 'specinvert[view]'") from error

from .app import Viewer as Viewer
from .given import Given as Given
from .page import Page as Page
from .server import serve as serve

__all__ = ["Given", "Page", "Viewer", "serve"]
