from .comparison import plot_comparison, plot_ranking, plot_selection
from .evaluation import plot_adaptation, plot_calibration, plot_check, plot_evaluation
from .layout import BandAxis, require_figure, robust_limits, save_figure
from .maps import BLANK, MOST_ODD, edges_of, flag_colours, plot_maps, unit_ratio
from .report import render, write_report
from .results import entry_text, is_tiff, open_geotiff_maps, open_results, pick, pixel_dims
from .spectrum import plot_convergence, plot_spectrum, plot_training
from .table import plot_results, plot_table

__all__ = [
    "BLANK",
    "MOST_ODD",
    "BandAxis",
    "edges_of",
    "entry_text",
    "flag_colours",
    "is_tiff",
    "open_geotiff_maps",
    "open_results",
    "pick",
    "pixel_dims",
    "plot_adaptation",
    "plot_calibration",
    "plot_check",
    "plot_comparison",
    "plot_convergence",
    "plot_evaluation",
    "plot_maps",
    "plot_ranking",
    "plot_results",
    "plot_selection",
    "plot_spectrum",
    "plot_table",
    "plot_training",
    "render",
    "require_figure",
    "robust_limits",
    "save_figure",
    "unit_ratio",
    "write_report",
]
