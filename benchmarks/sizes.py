"""How large everything is: the sizes that docs/performance.md shows, and small ones to see that it all works."""

from __future__ import annotations

from dataclasses import dataclass

N_PARAMETERS = 3
SEED = 0


@dataclass(frozen=True)
class Sizes:
    """Sizes of a run. The first five are the published case; what is compared takes turns in ``rounds``."""

    n: int = 10_000
    n_bands: int = 184
    n_components: int = 50
    n_latent: int = 2
    many_components: int = 200
    rounds: int = 5
    iterations: int = 15
    full_iterations: int = 2
    pixels: int = 1_000_000
    sweep_n: tuple[int, ...] = (2_500, 5_000, 10_000, 20_000, 40_000)
    sweep_bands: tuple[int, ...] = (46, 92, 184, 368, 736)
    sweep_components: tuple[int, ...] = (12, 25, 50, 100, 200)
    sweep_latent: tuple[int, ...] = (0, 1, 2, 4, 8)
    sweep_pixels: int = 200_000
    cube_side: int = 2_000
    cube_block: int = 250
    small_training: int = 100_000
    large_training: int = 5_000_000
    chunk: int = 20_000
    worker_training: int = 400_000
    peer_spectra: int = 200
    starts: int = 7

    @property
    def width(self) -> int:
        """Columns of the stacked matrix of the dense products: 1 + L for each component."""
        return self.n_components * (N_PARAMETERS + self.n_latent + 1)


FULL = Sizes()
QUICK = Sizes(
    n=4_000,
    n_components=20,
    many_components=80,
    rounds=2,
    iterations=5,
    full_iterations=1,
    pixels=100_000,
    sweep_n=(2_000, 4_000, 8_000),
    sweep_bands=(92, 184, 368),
    sweep_components=(10, 20, 40),
    sweep_latent=(0, 2, 4),
    sweep_pixels=50_000,
    cube_side=500,
    cube_block=125,
    large_training=400_000,
    worker_training=100_000,
    peer_spectra=20,
    starts=3,
)
