"""Subclasses: classes split by k-means in an embedding, and the way back to classes."""

from deeplda.subclasses.clustering import Clusters, split_classes
from deeplda.subclasses.silhouette import choose_k
from deeplda.subclasses.subclass_map import SubclassMap

__all__ = ["Clusters", "SubclassMap", "choose_k", "split_classes"]
