"""Sphinx settings of the documentation: builds without a network, and runs the pages' code."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import specinvert

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

os.environ["TQDM_DISABLE"] = "1"  # no bars among the results of the pages' code

project = "specinvert"
author = "The specinvert developers"
copyright = "The specinvert developers"
version = release = specinvert.__version__

extensions = [
    "myst_nb",
    "sections",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_autosummary_accessors",
    "sphinx_copybutton",
]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
default_role = "literal"
nitpicky = False

autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"ArrayLike": "ArrayLike", "FloatArray": "FloatArray", "Array": "Array"}
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_in_temp = True
nb_merge_streams = True

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = f"specinvert {version}"
html_static_path = ["_static", str(Path(find_spec("sphinx-mathjax-offline").origin).parent / "static")]
mathjax_path = "mathjax/tex-chtml.js"  # of that package: no network
html_css_files = ["specinvert.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "notebooks/quickstart", "method")}
html_context = {"default_mode": "auto"}
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
