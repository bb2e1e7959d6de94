"""Bags of frames: features kept on disk, and batches drawn from them.

`build_store` computes the features of clips once; `Bags` joins them with labels and draws batches, padded and masked
where clips differ in length. Files, each importing only those before it: `index`, `sources`, `store`, `sampling`.
"""

from earmark.bags.index import VERSION as STORE_VERSION
from earmark.bags.index import PitchShift
from earmark.bags.sampling import SLACK, Bags, Batch
from earmark.bags.store import FeatureStore, build_store, default_cache

__all__ = ["SLACK", "STORE_VERSION", "Bags", "Batch", "FeatureStore", "PitchShift", "build_store", "default_cache"]
