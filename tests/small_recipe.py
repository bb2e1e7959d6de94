"""The beginning of a recipe for tests that train: features and a network that take milliseconds."""

SMALL = """
[features]
rate = 8000
n_fft = 256
hop_samples = 128
n_bands = 16
[network]
reduction = 4
width = 0.25
"""
