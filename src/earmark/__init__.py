"""earmark learns when sounds happen from labels that only say that they happen.

`earmark.pooling` holds the pooling operators; `earmark.mil` a classifier for bags of anything; `earmark.keras` the
authors' Keras layers, honouring masks. `docs/architecture.md` shows the whole house.
"""

__version__ = "0.1.0"
