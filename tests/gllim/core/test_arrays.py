"""Numbers that stand for values: rows to hold out, and fingerprints."""

import hashlib

import numpy as np
import pytest

from specinvert.gllim.core.arrays import fingerprint, hold_out


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_rows_to_hold_out_are_a_share_that_no_order_and_no_chunks_change(share: float) -> None:
    rng = np.random.default_rng(0)
    spectra, parameters = rng.normal(size=(5000, 4)), rng.normal(size=(5000, 2))
    held = hold_out(share, parameters, spectra)
    assert held.mean() == pytest.approx(share, abs=0.02)
    order = rng.permutation(5000)
    np.testing.assert_array_equal(hold_out(share, parameters[order], spectra[order]), held[order])
    np.testing.assert_array_equal(hold_out(share, parameters[10:60], spectra[10:60]), held[10:60])
    single = np.float32(spectra)
    np.testing.assert_array_equal(hold_out(share, single), hold_out(share, np.float64(single)))


def test_a_fingerprint_is_that_of_the_bytes_and_tells_values_apart() -> None:
    values = np.arange(6.0).reshape(2, 3)
    assert fingerprint("a", b"\0b\0", values) == hashlib.sha256(b"a\0b\0" + values.tobytes()).hexdigest()
    assert fingerprint(values[:, ::-1]) == fingerprint(values[:, ::-1].copy()) != fingerprint(values)
