"""Figures: pure functions of measured values, each with its unit, its formula and where that is from."""
