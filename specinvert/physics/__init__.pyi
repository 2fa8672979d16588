from .geometry import Geometry
from .hapke import (
    Variant,
    brdf,
    geometry_coordinates,
    h_1981,
    h_1993,
    h_2002,
    h_exact,
    hapke_reflectance,
    simulate_brdf,
)
from .ices import simulate_polar_ices
from .mixing import (
    MixtureParameter,
    Parameter,
    mixture_reflectance,
    reflectance_attrs,
    simulate_mixtures,
    wavelength_attrs,
)
from .optics import (
    areal_mixture,
    fresnel_averages,
    grain_albedo,
    intimate_mixture,
    optical_constants,
    refractive_index,
)
from .phase import HenyeyGreenstein, Legendre, PhaseFunction, opposition_surge
from .prosail_model import CanopyParameter, simulate_prosail, simulate_prospect
from .roughness import Roughness, roughen
from .scene import make_scene
from .shkuratov import shkuratov_albedo, shkuratov_k, shkuratov_reflectance

__all__ = [
    "CanopyParameter",
    "Geometry",
    "HenyeyGreenstein",
    "Legendre",
    "MixtureParameter",
    "Parameter",
    "PhaseFunction",
    "Roughness",
    "Variant",
    "areal_mixture",
    "brdf",
    "fresnel_averages",
    "geometry_coordinates",
    "grain_albedo",
    "h_1981",
    "h_1993",
    "h_2002",
    "h_exact",
    "hapke_reflectance",
    "intimate_mixture",
    "make_scene",
    "mixture_reflectance",
    "opposition_surge",
    "optical_constants",
    "reflectance_attrs",
    "refractive_index",
    "roughen",
    "shkuratov_albedo",
    "shkuratov_k",
    "shkuratov_reflectance",
    "simulate_brdf",
    "simulate_mixtures",
    "simulate_polar_ices",
    "simulate_prosail",
    "simulate_prospect",
    "wavelength_attrs",
]
