from .comparison import plot_comparison, plot_ranking, plot_selection
from .evaluation import plot_calibration, plot_evaluation
from .layout import BandAxis, require_figure, robust_limits, save_figure
from .maps import FLAG_COLOURS, MOST_ODD, edges_of, plot_maps, unit_ratio
from .plots import plot_results
from .report import write_report
from .report_tables import Safe, element, facts, html_table, joined
from .results import entry_text, is_tiff, open_geotiff_maps, open_results, pick, pixel_dims
from .spectrum import Marginal, intervals, marginals, needed_outputs, noise_variance, plot_spectrum
from .table import plot_table
from .training import plot_convergence, plot_training

__all__ = [
    "FLAG_COLOURS",
    "MOST_ODD",
    "BandAxis",
    "Marginal",
    "Safe",
    "edges_of",
    "element",
    "entry_text",
    "facts",
    "html_table",
    "intervals",
    "is_tiff",
    "joined",
    "marginals",
    "needed_outputs",
    "noise_variance",
    "open_geotiff_maps",
    "open_results",
    "pick",
    "pixel_dims",
    "plot_calibration",
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
    "require_figure",
    "robust_limits",
    "save_figure",
    "unit_ratio",
    "write_report",
]
