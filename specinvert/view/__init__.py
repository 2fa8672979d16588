"""Maps in the browser: an interactive page on this machine, drawn by bokeh (extra ``view``)."""

try:
    import bokeh as _bokeh  # noqa: F401
except ImportError as error:
    raise ImportError("the viewer needs bokeh; install it with: pip install 'specinvert[view]'") from error

from .maps import open_maps, open_unread
from .page import Page as Page
from .page import Viewer as Viewer
from .page import serve as serve
from .pixel import Given as Given

__all__ = ["Given", "Page", "Viewer", "open_maps", "open_unread", "serve"]
