"""Figures as a person reads them: three digits and a unit, never an exponent."""

import pytest

from pipeline.common.figures import bytes_text, duration_text, short_count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (bytes_text(999), "999 B"),
        (bytes_text(1234), "1.23 kB"),
        (bytes_text(99_960), "100 kB"),
        (bytes_text(999_960), "1000 kB"),
        (bytes_text(2e18), "2000 PB"),
        (duration_text(0.25), "250 ms"),
        (duration_text(119.6), "120 s"),
        (duration_text(1_200 * 86_400), "1200 d"),
        (short_count(950), "950"),
        (short_count(999.9), "1000"),
        (short_count(12_345), "12.3 k"),
        (short_count(4_000_000), "4 M"),
        (short_count(5e12), "5000 G"),
        (short_count(0.126), "0.126"),
    ],
)
def test_figures_have_three_digits_and_no_exponent(text, expected):
    assert text == expected
